// Package pgtest runs real PostgreSQL servers for tests.
package pgtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Main runs a package's tests as an ordinary user, since PostgreSQL's programs
// refuse to run as root. Before that it runs prepare, which may return
// variables for the tests' environment. The test program also is what servers
// call to archive and to restore WAL.
func Main(m *testing.M, prepare func(dir string) (variables []string, err error)) int {
	if len(os.Args) > 1 && os.Args[1] == walCommand {
		return callBack(os.Args[2:])
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	code, err := runAsNobody(prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run the tests as another user than root:", err)
		return 1
	}
	return code
}

// runAsNobody runs a copy of this program, which lies where only root can
// reach it, as the user nobody.
func runAsNobody(prepare func(dir string) ([]string, error)) (int, error) {
	const nobody = 65534
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "test")
	if err := Copy("/proc/self/exe", program); err != nil {
		return 0, err
	}
	variables, err := prepare(dir)
	if err != nil {
		return 0, err
	}
	temporary := filepath.Join(dir, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return 0, err
	}
	for _, path := range []string{dir, temporary} {
		if err := os.Chown(path, nobody, nobody); err != nil {
			return 0, err
		}
	}
	// The go command's own log of what a test reads can't be written there.
	arguments := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(argument string) bool {
		return strings.HasPrefix(argument, "-test.testlogfile=")
	})
	cmd := exec.Command(program, arguments...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(append(os.Environ(), variables...), "TMPDIR="+temporary, "HOME="+temporary)
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

// Copy copies a program.
func Copy(from, to string) error {
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

// walCommand is the test program's first argument when a server calls it.
const walCommand = "pgtest-wal"

// callBack hands a server's request over to the test, and exits as it says.
func callBack(arguments []string) int {
	const fatal = 255 // ends a recovery, unlike lower ones
	socket, name, path := arguments[0], arguments[1], arguments[2]
	path, err := filepath.Abs(path)
	if err != nil {
		return fatal
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return fatal
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s\n", name, path)
	code := fatal
	if _, err := fmt.Fscanln(conn, &code); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// WALHandler does what a server asks for, and says how the server's command is
// to exit.
type WALHandler func(name, path string) (exit int)

// WALCommand is an archive_command or restore_command that calls the handler,
// as long as the test runs. %p stands for the path, %f for the name.
func WALCommand(t testing.TB, handle WALHandler) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			go answer(conn, handle)
		}
	}()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s %%f %%p", program, walCommand, socket)
}

func answer(conn net.Conn, handle WALHandler) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
	fmt.Fprintln(conn, handle(name, path))
}
