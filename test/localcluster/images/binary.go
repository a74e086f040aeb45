package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// nonRoot is the user of images that hold one program. It needs no entry in
// /etc/passwd, and being a number it satisfies runAsNonRoot.
const nonRoot = "65532:65532"

// operatorPath is where the manifests in deploy/ and the agent's init container
// expect the operator's program.
const operatorPath = "/postgres-operator"

// BuildOperator writes the operator's image, named name, to tarPath.
func BuildOperator(binaryPath, name, tarPath string) error {
	return BuildBinary(name, binaryPath, operatorPath, tarPath)
}

// BuildBinary writes to tarPath an image named name that holds nothing but the
// static program binaryPath, at destInImage, run as a non-root user. The same
// program gives the same bytes.
func BuildBinary(name, binaryPath, destInImage, tarPath string) error {
	if err := requireStatic(binaryPath); err != nil {
		return fmt.Errorf("build image %s: %w", name, err)
	}
	layer, err := programLayer(binaryPath, destInImage)
	if err != nil {
		return fmt.Errorf("build image %s: %w", name, err)
	}
	img, err := assemble(v1.Config{
		User:       nonRoot,
		Entrypoint: []string{destInImage},
		WorkingDir: "/",
		Env:        []string{"PATH=" + path.Dir(destInImage)},
	}, layer)
	if err != nil {
		return fmt.Errorf("build image %s: %w", name, err)
	}
	return writeArchive(tarPath, name, img)
}

// requireStatic refuses a program that needs a loader: the image has none, and
// the container would die with a misleading "no such file or directory".
func requireStatic(binaryPath string) error {
	f, err := elf.Open(binaryPath)
	if err != nil {
		return fmt.Errorf("read program %s: %w", binaryPath, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("program %s is dynamically linked: build it with CGO_ENABLED=0", binaryPath)
		}
	}
	return nil
}

// programLayer is a layer of one executable file and its parent directories. It
// streams the file, so that a large program is not held in memory.
func programLayer(binaryPath, dest string) (*storedLayer, error) {
	if !path.IsAbs(dest) || path.Clean(dest) != dest || dest == "/" {
		return nil, fmt.Errorf("place in image %q: not a clean absolute path of a file", dest)
	}
	info, err := os.Stat(binaryPath)
	if err != nil {
		return nil, err
	}
	head, err := programHeaders(dest, info.Size())
	if err != nil {
		return nil, err
	}
	padding := (512 - info.Size()%512) % 512
	tail := make([]byte, padding+1024)
	return newStoredLayer(func() (io.ReadCloser, error) {
		f, err := os.Open(binaryPath)
		if err != nil {
			return nil, err
		}
		body := &exactReader{r: f, left: info.Size()}
		return readCloser{io.MultiReader(bytes.NewReader(head), body, bytes.NewReader(tail)), f}, nil
	}), nil
}

// programHeaders returns the tar stream up to the file's content.
func programHeaders(dest string, size int64) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range parents(dest) {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)})
		if err != nil {
			return nil, err
		}
	}
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dest[1:], Mode: 0o755, Size: size, ModTime: time.Unix(0, 0)})
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// parents lists the directories above the absolute path p, outermost first and
// without the leading slash.
func parents(p string) []string {
	var dirs []string
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		dirs = append([]string{d[1:]}, dirs...)
	}
	return dirs
}

// exactReader fails unless r holds exactly left bytes, for the header in front
// of them has already promised their number.
type exactReader struct {
	r    io.Reader
	left int64
}

var errProgramChanged = errors.New("program changed while it was being read")

func (e *exactReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.left -= int64(n)
	if e.left < 0 || (err == io.EOF && e.left > 0) {
		return 0, errProgramChanged
	}
	return n, err
}

type readCloser struct {
	io.Reader
	io.Closer
}
