package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestBuildOperator(t *testing.T) {
	binary, out := buildProgram(t, "CGO_ENABLED=0"), filepath.Join(t.TempDir(), "operator.tar")
	if err := BuildOperator(binary, "docker.io/pgop/postgres-operator:dev", out); err != nil {
		t.Fatal(err)
	}

	if got, want := tagsOf(t, out), []string{"docker.io/pgop/postgres-operator:dev"}; !slices.Equal(got, want) {
		t.Errorf("tags: got %v, want %v", got, want)
	}
	want := v1.Config{
		User:       "65532:65532",
		Entrypoint: []string{"/postgres-operator"},
		WorkingDir: "/",
		Env:        []string{"PATH=/"},
	}
	if diff := cmp.Diff(want, configOf(t, out)); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles := map[string]file{"postgres-operator": {mode: 0o755, content: string(program)}}
	if diff := cmp.Diff(wantFiles, filesOf(t, out), cmp.AllowUnexported(file{})); diff != "" {
		t.Error("the image holds something else than the program")
	}
}

func TestBuildBinaryIsReproducible(t *testing.T) {
	binary, dir := buildProgram(t, "CGO_ENABLED=0"), t.TempDir()
	var archives [2][]byte
	for i := range archives {
		out := filepath.Join(dir, "out.tar")
		if err := BuildBinary("docker.io/test/client:1", binary, "/usr/bin/client", out); err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		archives[i] = archive
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one program differ")
	}
}

func TestBuildBinaryMakesParentDirectories(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.tar")
	if err := BuildBinary("docker.io/test/client:1", buildProgram(t, "CGO_ENABLED=0"), "/usr/bin/client", out); err != nil {
		t.Fatal(err)
	}
	files := filesOf(t, out)
	for _, dir := range []string{"usr", "usr/bin"} {
		if got, want := files[dir], (file{mode: 0o755}); got != want {
			t.Errorf("%s: got %+v, want %+v", dir, got, want)
		}
	}
}

func TestBuildBinaryRefuses(t *testing.T) {
	static := buildProgram(t, "CGO_ENABLED=0")
	for reason, c := range map[string]struct{ name, binary, dest string }{
		"program is no program":        {"docker.io/test/client:1", "images_test.go", "/client"},
		"program is missing":           {"docker.io/test/client:1", "no-such-file", "/client"},
		"place is relative":            {"docker.io/test/client:1", static, "client"},
		"name says no tag or registry": {"client", static, "/client"},
	} {
		out := filepath.Join(t.TempDir(), "out.tar")
		if err := BuildBinary(c.name, c.binary, c.dest, out); err == nil {
			t.Errorf("%s: no error", reason)
		}
		if left, _ := os.ReadDir(filepath.Dir(out)); len(left) > 0 {
			t.Errorf("%s: left %v", reason, left)
		}
	}
}

func TestUIDVariantChangesOnlyTheAccountAndItsFiles(t *testing.T) {
	dir := t.TempDir()
	base, out := filepath.Join(dir, "base.tar"), filepath.Join(dir, "variant.tar")
	writeBase(t, base, []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./run/postgresql/", Mode: 0o3777, Uid: 999, Gid: 999},
		{Typeflag: tar.TypeReg, Name: "./etc/ssl/key", Mode: 0o640, Uid: 0, Gid: 999},
		{Typeflag: tar.TypeReg, Name: "./etc/other", Mode: 0o644},
	})

	if err := makeUIDVariant(base, PostgresUIDName(17, 70), 70, out); err != nil {
		t.Fatal(err)
	}
	if got, want := tagsOf(t, out), []string{"docker.io/library/postgres:17-uid70"}; !slices.Equal(got, want) {
		t.Errorf("tags: got %v, want %v", got, want)
	}
	if diff := cmp.Diff(postgresConfig(17), configOf(t, out)); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	want := map[string]file{
		"etc/passwd":     {mode: 0o644, content: "root:x:0:0:root:/root:/bin/bash\npostgres:x:70:70::/var/lib/postgresql:/bin/bash\n"},
		"etc/group":      {mode: 0o644, content: "root:x:0:\npostgres:x:70:\n"},
		"run/postgresql": {mode: 0o3777, uid: 70, gid: 70},
		"etc/ssl/key":    {mode: 0o640, gid: 70},
		"etc/other":      {mode: 0o644},
	}
	if diff := cmp.Diff(want, filesOf(t, out), cmp.AllowUnexported(file{})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestRecipeHash(t *testing.T) {
	seventeen, err := recipeFor(17)
	if err != nil {
		t.Fatal(err)
	}
	changed := seventeen
	changed.options = append(slices.Clone(changed.options), "--include=more")
	if seventeen.hash() == changed.hash() {
		t.Error("another recipe has the same hash")
	}
	if again, _ := recipeFor(17); again.hash() != seventeen.hash() {
		t.Error("one recipe has two hashes")
	}
	if _, err := recipeFor(9); err == nil {
		t.Error("no error for a version that Debian does not have")
	}
}

func TestEnsureCachedMakesOnce(t *testing.T) {
	cache, made := t.TempDir(), 0
	make := func(path string) error {
		made++
		return os.WriteFile(path, []byte("image"), 0o644)
	}
	for range 2 {
		path, err := ensureCached(t.Context(), cache, "postgres-17", "one", make)
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != "image" {
			t.Fatalf("read %q, %v", content, err)
		}
	}
	if made != 1 {
		t.Fatalf("made %d times", made)
	}
}

func TestEnsureCachedTrustsNothingUnfinishedOrOutdated(t *testing.T) {
	cache := t.TempDir()
	broken := errors.New("broken")
	_, err := ensureCached(t.Context(), cache, "postgres-17", "one", func(path string) error {
		// As a killed run would leave it.
		if err := os.Mkdir(filepath.Join(filepath.Dir(path), workPrefix+"1"), 0o755); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	for _, key := range []string{"one", "two"} {
		path, err := ensureCached(t.Context(), cache, "postgres-17", key, func(path string) error {
			return os.WriteFile(path, []byte(key), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: cache holds %v, %v; want only %s", key, entries, err, path)
		}
	}
}

func TestReplaceFileKeepsTheOldOneOnFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := replaceFile(path, func(w io.Writer) error {
		w.Write([]byte("new"))
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got %v, want %v", err, broken)
	}
	if content, _ := os.ReadFile(path); string(content) != "old" {
		t.Fatalf("file holds %q", content)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Fatalf("left: %v", entries)
	}
}

// file is what an image holds under one name.
type file struct {
	mode     int64
	uid, gid int
	content  string
}

// buildProgram returns the path of a program that does nothing.
func buildProgram(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", binary, source)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build program: %v\n%s", err, out)
	}
	return binary
}

// writeBase writes an image as EnsurePostgres would, with the accounts and empty
// files under headers.
func writeBase(t *testing.T, path string, headers []tar.Header) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(header tar.Header, content string) {
		header.Size = int64(len(content))
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	account := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644} }
	add(account("./etc/passwd"), "root:x:0:0:root:/root:/bin/bash\npostgres:x:999:999::/var/lib/postgresql:/bin/bash\n")
	add(account("./etc/group"), "root:x:0:\npostgres:x:999:\n")
	for _, header := range headers {
		add(header, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer := newStoredLayer(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	img, err := assemble(postgresConfig(17), layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeArchive(path, PostgresName(17), img); err != nil {
		t.Fatal(err)
	}
}

func tagsOf(t *testing.T, path string) []string {
	t.Helper()
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 {
		t.Fatalf("%d images in one archive", len(manifest))
	}
	return manifest[0].RepoTags
}

func configOf(t *testing.T, path string) v1.Config {
	t.Helper()
	img := imageOf(t, path)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config.Config
}

// filesOf reads all layers, the upper over the lower.
func filesOf(t *testing.T, tarPath string) map[string]file {
	t.Helper()
	flat := mutate.Extract(imageOf(t, tarPath))
	defer flat.Close()
	files := map[string]file{}
	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[path.Clean(header.Name)] = file{mode: header.Mode, uid: header.Uid, gid: header.Gid, content: string(content)}
	}
}

func imageOf(t *testing.T, path string) v1.Image {
	t.Helper()
	img, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
