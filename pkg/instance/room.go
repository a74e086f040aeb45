package instance

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// roomy is how much memory the agent may take, in bytes, while it handles the
	// content of backups, and roomyPercent how much garbage may pile up meanwhile, in
	// percent of what is in use: that is a few buffers of megabytes, and with less
	// room it would do little else than collect them.
	roomy        = 112 << 20
	roomyPercent = 100
	// lingering is how long it keeps that after the last use: files come one after
	// the other.
	lingering = 20 * time.Second
)

// room is how much memory the agent takes: little, but for the time in which it
// needs more. The zero value is ready to use.
type room struct {
	mu    sync.Mutex
	users int
	// usual is the limit to go back to; 0: it was not changed. usualPercent is how much
	// garbage it lets pile up, in percent of what is in use: while there is room, more.
	usual        int64
	usualPercent int
	leave        *time.Timer
}

// enter lets the agent take more until what it returns is called.
func (m *room) enter() (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
	if m.leave != nil {
		m.leave.Stop()
		m.leave = nil
	}
	if m.usual == 0 {
		if before := debug.SetMemoryLimit(-1); before < roomy {
			m.usual = before
			debug.SetMemoryLimit(roomy)
			m.usualPercent = debug.SetGCPercent(roomyPercent)
		}
	}
	return m.exit
}

func (m *room) exit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users == 0 && m.usual != 0 {
		m.leave = time.AfterFunc(lingering, m.shrink)
	}
}

func (m *room) shrink() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 || m.usual == 0 {
		return
	}
	debug.SetGCPercent(m.usualPercent)
	debug.SetMemoryLimit(m.usual)
	m.usual = 0
	debug.FreeOSMemory()
}
