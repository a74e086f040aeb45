package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// programPath is PATH for everything that the cluster runs, wherever `up` was
// called from.
const programPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// process is a program of the cluster, which outlives the command that started
// it. Its record on disk tells it from a later process of the same number.
type process struct {
	cluster *cluster
	name    string
}

func (c *cluster) process(name string) process { return process{cluster: c, name: name} }

func (p process) pidFile() string { return p.cluster.path("run", p.name+".pid") }

// pid is 0 if the process does not run.
func (p process) pid() int {
	content, err := os.ReadFile(p.pidFile())
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) != 2 {
		return 0
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || startTime(pid) != fields[1] {
		return 0
	}
	return pid
}

func (p process) runs() bool { return p.pid() != 0 }

// start runs cmd with its output in the process's log, and records it.
func (p process) start(cmd *exec.Cmd) error {
	if err := os.MkdirAll(filepath.Dir(p.cluster.logFile(p.name)), 0o755); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	log, err := os.OpenFile(p.cluster.logFile(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.Env = append(cmd.Env, programPath, "HOME=/root")
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true // the terminal's signals are not for it
	if err := cmd.Start(); err != nil {
		log.Close()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	// Its death shows, and has a reason, for as long as this command still runs.
	go func() {
		err := cmd.Wait()
		fmt.Fprintf(log, "%s ended: %v\n", p.name, err)
		log.Close()
	}()
	record := fmt.Sprintf("%d %s\n", cmd.Process.Pid, startTime(cmd.Process.Pid))
	return writeFile(p.pidFile(), []byte(record), 0o644)
}

// startInControlPlane runs a program in the machine's own namespaces. The
// program is in the cgroup from its first instruction, so that a kill of this
// command leaves nothing that `down` would not find.
func (c *cluster) startInControlPlane(name, program string, args []string) error {
	p := c.process(name)
	if p.runs() {
		return nil
	}
	cmd := exec.Command(c.self(), append([]string{"run-in", c.controlPlaneCgroup(), program}, args...)...)
	return p.start(cmd)
}

// runIn is the other half of startInControlPlane: it becomes the program.
func runIn(cgroup, program string, argv []string) error {
	if err := joinCgroup(cgroup); err != nil {
		return err
	}
	if err := syscall.Exec(program, argv, os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}

// stop asks the process to end, and makes it end after grace.
func (p process) stop(grace time.Duration) error {
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	if p.awaitEnd(grace) {
		return nil
	}
	return p.kill()
}

// kill returns when the process is gone.
func (p process) kill() error {
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	if !p.awaitEnd(10 * time.Second) {
		return fmt.Errorf("kill %s: process %d is still there", p.name, p.pid())
	}
	return nil
}

func (p process) signal(s unix.Signal) error {
	pid := p.pid()
	if pid == 0 {
		return nil
	}
	if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

func (p process) awaitEnd(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !p.runs() {
			return true
		}
	}
	return !p.runs()
}

// startTime names the process pid among all that ever had the number; it is
// empty if there is none or it is dead.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return parseStartTime(stat)
}

func parseStartTime(stat []byte) string {
	// The name in the second field may hold anything, parentheses too.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return ""
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// errEnded means that a process has ended which should run for as long as the
// cluster does.
var errEnded = errors.New("has ended")

// await polls until ready returns nil. It gives up early when one of the
// processes it depends on has died, and says what that one logged last.
func await(ctx context.Context, what string, limit time.Duration, ready func(context.Context) error, needs ...process) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range needs {
			if !p.runs() {
				return fmt.Errorf("wait for %s: %s %w; the end of %s:\n%s", what, p.name, errEnded, p.cluster.logFile(p.name), p.lastLog())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: not within %s: %w; logs are in %s", what, limit, err, needsLogs(needs))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func needsLogs(needs []process) string {
	var files []string
	for _, p := range needs {
		files = append(files, p.cluster.logFile(p.name))
	}
	return strings.Join(files, ", ")
}

// lastLog returns the log's last lines.
func (p process) lastLog() string {
	content, err := os.ReadFile(p.cluster.logFile(p.name))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(content), 12)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// run runs a tool to its end; what it printed goes into the error.
func run(ctx context.Context, stdin string, program string, args ...string) error {
	_, err := output(ctx, stdin, program, args...)
	return err
}

func output(ctx context.Context, stdin string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		said := lastLines(out.String()+complaints.String(), 20)
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// keepFilesFromChildren lets no program that this one starts inherit files that
// it got from its caller: the cluster's processes live on, and would hold the
// caller's locks and pipes.
func keepFilesFromChildren() error {
	const firstAfterStderr, last = 3, ^uint(0)
	if err := unix.CloseRange(firstAfterStderr, last, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep files from children: %w", err)
	}
	return nil
}
