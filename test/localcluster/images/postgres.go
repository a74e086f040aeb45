package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Progress reports a step that takes long enough for someone to wonder.
type Progress = func(format string, args ...any)

var (
	//go:embed recipe/users.sh
	usersHook []byte
	//go:embed recipe/finish.sh
	finishHook []byte
)

// releases names the Debian release that has each major version of PostgreSQL.
var releases = map[int]string{15: "bookworm", 17: "trixie"}

// PostgresName is the name of the image that EnsurePostgres makes, the Docker
// Official one's, so that manifests run unchanged here and elsewhere.
func PostgresName(major int) string { return fmt.Sprintf("docker.io/library/postgres:%d", major) }

// EnsurePostgres returns the archive of an image that honours the contract of
// the Docker Official image postgres:<major>, except for its entrypoint script
// and for JIT compilation, whose compiler would be half of the image: postgres
// finds no JIT provider and goes on without.
//
// The archive is kept in cacheDir for as long as the recipe stays the same. The
// calls of several processes take turns.
func EnsurePostgres(ctx context.Context, cacheDir string, major int, progress func(format string, args ...any)) (tarPath string, err error) {
	recipe, err := recipeFor(major)
	if err != nil {
		return "", err
	}
	return recipe.ensure(ctx, cacheDir, fmt.Sprintf("postgres-%d", major), progress)
}

// PostgresEarlierName is the name of the image that EnsurePostgresEarlier makes.
func PostgresEarlierName(major int) string { return PostgresName(major) + "-earlier" }

// EnsurePostgresEarlier returns the archive of an image as EnsurePostgres's with the
// minor version that the Debian release has without its security updates: an earlier
// one, but for the weeks after a point release, in which both are the same.
func EnsurePostgresEarlier(ctx context.Context, cacheDir string, major int, progress func(format string, args ...any)) (tarPath string, err error) {
	recipe, err := recipeFor(major)
	if err != nil {
		return "", err
	}
	recipe.name = PostgresEarlierName(major)
	recipe.options = append(recipe.options, withoutSecurityUpdates)
	return recipe.ensure(ctx, cacheDir, fmt.Sprintf("postgres-%d-earlier", major), progress)
}

// withoutSecurityUpdates makes mmdebstrap's apt forget Debian's security archive.
const withoutSecurityUpdates = `--setup-hook=sed -i '/-security /d' "$1/etc/apt/sources.list"`

// recipe is everything that decides what an image holds.
type recipe struct {
	name    string
	release string
	major   int
	options []string
	config  v1.Config
}

func recipeFor(major int) (recipe, error) {
	release, known := releases[major]
	if !known {
		return recipe{}, fmt.Errorf("make image of PostgreSQL %d: no Debian release is known to have it", major)
	}
	return recipe{
		name:    PostgresName(major),
		release: release,
		major:   major,
		options: debianOptions(major),
		config:  postgresConfig(major),
	}, nil
}

// debianOptions ask mmdebstrap for a root file system without apt, manuals,
// translations and the compiler for JIT.
func debianOptions(major int) []string {
	options := []string{
		"--mode=root",
		"--variant=essential",
		"--format=tar",
		"--skip=cleanup/run", // where finish.sh makes the socket directory
		fmt.Sprintf("--include=postgresql-%d,locales", major),
		`--aptopt=Acquire::Retries "3"`,
	}
	for _, pattern := range []string{
		"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*",
		"/usr/lib/*/libLLVM*", "/usr/lib/*/libz3*", "/usr/lib/llvm*",
		"/usr/lib/postgresql/*/lib/llvmjit*", "/usr/lib/postgresql/*/lib/bitcode/*",
	} {
		options = append(options, "--dpkgopt=path-exclude="+pattern)
	}
	return append(options, "--dpkgopt=path-include=/usr/share/locale/locale.alias")
}

func postgresConfig(major int) v1.Config {
	return v1.Config{
		Env: []string{
			fmt.Sprintf("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/%d/bin", major),
			"LANG=en_US.utf8",
			fmt.Sprintf("PG_MAJOR=%d", major),
			"PGDATA=/var/lib/postgresql/data",
		},
		Cmd:          []string{"postgres"},
		Volumes:      map[string]struct{}{"/var/lib/postgresql/data": {}},
		ExposedPorts: map[string]struct{}{"5432/tcp": {}},
		StopSignal:   "SIGINT",
	}
}

// ensure returns the archive that the cache has below prefix, or makes it.
func (r recipe) ensure(ctx context.Context, cacheDir, prefix string, progress Progress) (tarPath string, err error) {
	return ensureCached(ctx, cacheDir, prefix, r.hash(), func(tarPath string) error {
		progress("making image %s from Debian %s: about a minute", r.name, r.release)
		return r.make(ctx, tarPath)
	})
}

// hash changes whenever the image would.
func (r recipe) hash() string {
	text, err := json.Marshal([]any{r.name, r.release, r.options, r.config, usersHook, finishHook})
	if err != nil {
		panic(err) // plain strings and maps of strings always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// make writes the image to tarPath. It works in a directory of its own beside
// it, of which a killed run may leave the remains.
func (r recipe) make(ctx context.Context, tarPath string) error {
	work, err := os.MkdirTemp(filepath.Dir(tarPath), workPrefix)
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	defer os.RemoveAll(work)

	root, err := r.bootstrap(ctx, work)
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	img, err := assemble(r.config, fileLayer(root))
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	return writeArchive(tarPath, r.name, img)
}

// bootstrap returns the image's root file system as a tar file below work.
func (r recipe) bootstrap(ctx context.Context, work string) (string, error) {
	if err := ensureMmdebstrap(ctx); err != nil {
		return "", err
	}
	users, finish := filepath.Join(work, "users.sh"), filepath.Join(work, "finish.sh")
	if err := os.WriteFile(users, usersHook, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(finish, finishHook, 0o755); err != nil {
		return "", err
	}
	// The packages are downloaded by an unprivileged user.
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	root := filepath.Join(work, "root.tar")
	args := append([]string{"--essential-hook=" + users, "--customize-hook=" + finish}, r.options...)
	cmd := command(ctx, "mmdebstrap", append(args, r.release, root)...)
	cmd.Env = append(cmd.Env, "TMPDIR="+work, "PG_MAJOR="+strconv.Itoa(r.major))
	// mmdebstrap mounts /proc and more below work. Nobody else sees these mounts,
	// and however it ends, none stays.
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	return root, run(cmd)
}

// ensureMmdebstrap installs mmdebstrap where it is missing.
func ensureMmdebstrap(ctx context.Context) error {
	_, err := exec.LookPath("mmdebstrap")
	if err == nil {
		return nil
	}
	if !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	install := []string{"install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600", "mmdebstrap"}
	if run(command(ctx, "apt-get", install...)) == nil {
		return nil
	}
	// The package lists may be missing or too old to be of use.
	if err := run(command(ctx, "apt-get", "update")); err != nil {
		return err
	}
	return run(command(ctx, "apt-get", install...))
}

// command is exec.CommandContext for a program with children: they end with it,
// at the end of ctx as well as at this process's death.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs cmd and puts the end of what it printed into the error.
func run(cmd *exec.Cmd) error {
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w\n%s", filepath.Base(cmd.Path), err, lastLines(output, 15))
	}
	return nil
}

func lastLines(output []byte, n int) string {
	lines := strings.Split(string(bytes.TrimSpace(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
