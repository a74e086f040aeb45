// Package walcall is how the server's archive_command and restore_command reach
// the agent: `postgres-operator archive NAME` and `postgres-operator restore-wal
// NAME PATH` send one line over a unix socket and end as the answer says.
//
//	server ──▶ sh ──▶ postgres-operator archive 0000…2A ──socket──▶ agent
//
// The server waits for each call, one a segment, so this package is made to be
// quick: it uses system calls alone, and nothing of the program that is larger.
package walcall

import (
	"os"
	"strings"
	"syscall"
)

// Variable names the socket to the commands; the server hands it on to them.
const Variable = "PGOP_AGENT_SOCKET"

// The subcommands, which are also the first words of the lines that are sent.
const (
	Archive = "archive"
	Restore = "restore-wal"
)

// What a command exits with. The server takes Failed of archive_command for a
// reason to try again, and of restore_command for the end of the archive; with
// Abort an archiver ends at once, and so does a recovery.
const (
	Done   = 0
	Failed = 1
	Abort  = 255
)

// arguments is how many each subcommand takes.
var arguments = map[string]int{Archive: 1, Restore: 2}

// Run carries out the subcommand that args begin with; handled is false if they
// begin with another. Exit is what the process is to exit with.
func Run(args []string) (exit int, handled bool) {
	if len(args) == 0 {
		return 0, false
	}
	count, known := arguments[args[0]]
	if !known {
		return 0, false
	}
	if len(args) != 1+count {
		complain(args[0] + " is called by the server, with a file's name")
		return Abort, true
	}
	exit, words, err := ask(os.Getenv(Variable), strings.Join(args, " "))
	switch {
	case err != nil:
		complain(args[0] + ": reach the agent: " + err.Error())
		return unreachable(args[0]), true
	case words != "":
		complain(words)
	}
	return exit, true
}

// unreachable is what a command exits with that doesn't reach the agent: archiving
// is tried again, while a recovery must not take it for the end of the archive.
func unreachable(subcommand string) int {
	if subcommand == Archive {
		return Failed
	}
	return Abort
}

func complain(words string) { _, _ = os.Stderr.WriteString("postgres-operator: " + words + "\n") }

// ask sends a line and returns the answer: an exit code, a blank, and words for
// the server's log.
func ask(socket, line string) (exit int, words string, err error) {
	if socket == "" {
		return 0, "", os.ErrNotExist
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, "", err
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return 0, "", err
	}
	if err := send(fd, []byte(line+"\n")); err != nil {
		return 0, "", err
	}
	answer, err := readAll(fd)
	if err != nil {
		return 0, "", err
	}
	return parse(answer)
}

func send(fd int, text []byte) error {
	for len(text) > 0 {
		n, err := syscall.Write(fd, text)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

func readAll(fd int) (string, error) {
	var answer []byte
	buffer := make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, buffer)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return "", err
		case n == 0:
			return string(answer), nil
		default:
			answer = append(answer, buffer[:n]...)
		}
	}
}

// parse reads an answer. One that was cut off, as by an agent that ends, is none.
func parse(answer string) (exit int, words string, err error) {
	text, whole := strings.CutSuffix(answer, "\n")
	code, words, _ := strings.Cut(text, " ")
	if !whole || code == "" || len(code) > 3 {
		return 0, "", syscall.ECONNRESET
	}
	for _, digit := range []byte(code) {
		if digit < '0' || digit > '9' {
			return 0, "", syscall.EBADMSG
		}
		exit = exit*10 + int(digit-'0')
	}
	return exit, words, nil
}
