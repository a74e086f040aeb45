package instance

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain runs the tests as an ordinary user, since PostgreSQL's programs
// refuse to run as root.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	code, err := runAsNobody()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests as another user than root:", err)
		code = 1
	}
	os.Exit(code)
}

// runAsNobody runs a copy of this program, which lies where only root can
// reach it, as the user nobody.
func runAsNobody() (int, error) {
	const nobody = 65534
	dir, err := os.MkdirTemp("", "instance-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "test")
	if err := copyFile("/proc/self/exe", program); err != nil {
		return 0, err
	}
	temporary := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return 0, err
	}
	for path, owner := range map[string]int{dir: nobody, temporary: nobody} {
		if err := os.Chown(path, owner, owner); err != nil {
			return 0, err
		}
	}
	// The go command's own log of what a test reads can't be written there.
	arguments := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(argument string) bool {
		return strings.HasPrefix(argument, "-test.testlogfile=")
	})
	cmd := exec.Command(program, arguments...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "HOME="+temporary)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		// A test that is killed takes its servers with it.
		Pdeathsig: syscall.SIGKILL,
	}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Close()
}
