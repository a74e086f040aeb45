package instance

import (
	"fmt"
	"os"
	"strings"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// noticeRecovery says that a server which does not serve yet is at work: after a
// crash it replays all WAL since the last checkpoint, which may take minutes. How
// far it has come, its log tells.
func (a *Agent) noticeRecovery() {
	s := a.server
	if s == nil || s.isReady() || s.hasExited() || a.status.snapshot().Phase != instanceapi.PhaseStarting {
		return
	}
	if startupProcess(s.cmd.Process.Pid, "recovering") != "" {
		a.status.enter(instanceapi.PhaseStarting, "recovering: it replays the WAL since its last checkpoint, and serves when that is done")
	}
}

// startupProcess is the id of the postmaster's child that recovers, if its title
// says that it does so; empty: there is none, or that can't be told.
func startupProcess(postmaster int, doing string) string {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	if err != nil {
		return "" // it has ended, or the kernel does not say
	}
	for pid := range strings.FieldsSeq(string(children)) {
		title, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && strings.Contains(string(title), "startup "+doing) {
			return pid
		}
	}
	return ""
}
