package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Progress reports a step that takes long enough for someone to wonder.
type Progress = func(format string, args ...any)

// recipe is everything that decides what an image made of Debian's packages holds.
type recipe struct {
	name    string
	release string
	options []string
	hooks   []hook
	// env is what the hooks find in their environment, as NAME=value.
	env    string
	config v1.Config
}

// hook is a script, and mmdebstrap's option that says when it is run.
type hook struct {
	option string
	script []byte
}

// slimDebian asks mmdebstrap for a root file system with these packages, and without
// apt, manuals, translations and what matches the patterns.
func slimDebian(packages string, without ...string) []string {
	options := []string{
		"--mode=root",
		"--variant=essential",
		"--format=tar",
		"--include=" + packages,
		`--aptopt=Acquire::Retries "3"`,
	}
	for _, pattern := range append([]string{"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*"}, without...) {
		options = append(options, "--dpkgopt=path-exclude="+pattern)
	}
	return options
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
	parts := []any{r.name, r.release, r.options, r.config}
	for _, hook := range r.hooks {
		parts = append(parts, hook.script)
	}
	text, err := json.Marshal(parts)
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
	args, err := r.writeHooks(work)
	if err != nil {
		return "", err
	}
	// The packages are downloaded by an unprivileged user.
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	root := filepath.Join(work, "root.tar")
	args = append(append(args, r.options...), r.release, root)
	cmd := command(ctx, "mmdebstrap", args...)
	cmd.Env = append(cmd.Env, "TMPDIR="+work, r.env)
	// mmdebstrap mounts /proc and more below work. Nobody else sees these mounts,
	// and however it ends, none stays.
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	return root, run(cmd)
}

// writeHooks returns the options that make mmdebstrap run the hooks.
func (r recipe) writeHooks(dir string) ([]string, error) {
	var options []string
	for i, hook := range r.hooks {
		path := filepath.Join(dir, fmt.Sprintf("hook-%d.sh", i))
		if err := os.WriteFile(path, hook.script, 0o755); err != nil {
			return nil, err
		}
		options = append(options, hook.option+"="+path)
	}
	return options, nil
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
