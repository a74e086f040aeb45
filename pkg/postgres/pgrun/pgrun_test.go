package pgrun

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestReapOrphansLeavesOwnChildren(t *testing.T) {
	var c Children
	own := exec.Command("sh", "-c", "exit 3")
	if err := c.Start(own); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("true")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		if _, err := c.ReapOrphans(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/proc/" + strconv.Itoa(stranger.Process.Pid)); errors.Is(err, os.ErrNotExist) {
			break
		}
		time.Sleep(5 * time.Millisecond)
		// An own child that has ended may hide the stranger; its Wait comes.
		if own != nil && ended(own.Process.Pid) {
			var exit *exec.ExitError
			if err := c.Wait(own); !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Fatalf("Wait of an own child says %v, want exit status 3", err)
			}
			own = nil
		}
	}
	if err := stranger.Wait(); err == nil {
		t.Error("the orphan was not reaped")
	}
	if own != nil {
		if err := c.Wait(own); err == nil || err.Error() != "exit status 3" {
			t.Errorf("Wait of an own child says %v", err)
		}
	}
	if done, err := c.ReapOrphans(); !done || err != nil {
		t.Errorf("nothing is left to reap: %v, %v", done, err)
	}
}

// ended says whether a process is a zombie.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestRunQuotesWhatTheProgramSaid(t *testing.T) {
	p := &Programs{Children: &Children{}}
	_, err := p.run(context.Background(), "sh", "-c", "echo one >&2; echo two >&2; exit 1")
	var failed *CommandError
	if !errors.As(err, &failed) || err.Error() != "sh: one; two" {
		t.Errorf("got %v", err)
	}
	if _, err := p.run(context.Background(), "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	p := &Programs{Children: &Children{}}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	// The grandchild holds the pipes open.
	if _, err := p.run(ctx, "sh", "-c", "sleep 60 & sleep 60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestEnvironmentHasNothingOfLibpq(t *testing.T) {
	got := Environment([]string{"PATH=/bin", "PGHOST=x", "LC_MESSAGES=de_DE", "LANG=de_DE"})
	if text := strings.Join(got, " "); text != "PATH=/bin LANG=de_DE LC_ALL=C TZ=UTC" {
		t.Errorf("got %s", text)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	tail := &Tail{Size: 10}
	for range 100 {
		_, _ = tail.Write([]byte("0123456789"))
	}
	_, _ = tail.Write([]byte("end"))
	if got := tail.String(); !strings.HasSuffix(got, "end") || len(got) > 23 {
		t.Errorf("got %q", got)
	}
	words := &Tail{Size: 1000}
	_, _ = words.Write([]byte("2026-11-28 01:00:00.123 UTC [42] FATAL:  no\ninitdb: removing data directory\n\n  b \n"))
	if got := words.Words(); got != "FATAL:  no; b" {
		t.Errorf("got %q", got)
	}
}
