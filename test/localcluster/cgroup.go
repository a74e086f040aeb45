package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	root string
	// unified is cgroup v2; otherwise controllers says which of v1 it has.
	unified     bool
	controllers []string
}

// hierarchies returns all that a process must join to be wholly in a cgroup:
// those of v1 first, then v2's, which a machine with v1 may have beside them.
func hierarchies() ([]hierarchy, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	return cgroupHierarchies(mounts), nil
}

func cgroupHierarchies(mounts []mount) []hierarchy {
	var v1, v2 []hierarchy
	seen := map[string]bool{}
	for _, m := range mounts {
		if !strings.HasPrefix(m.point, "/sys/fs/cgroup") || seen[m.point] {
			continue
		}
		seen[m.point] = true
		switch m.fsType {
		case "cgroup":
			v1 = append(v1, hierarchy{root: m.point, controllers: strings.Split(m.superOptions, ",")})
		case "cgroup2":
			v2 = append(v2, hierarchy{root: m.point, unified: true})
		}
	}
	return append(v1, v2...)
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// makeCgroup makes the cgroup and its parents in every hierarchy, with all that
// is needed for processes and further cgroups in it.
func makeCgroup(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("make cgroup: no cgroup file system is mounted below /sys/fs/cgroup")
	}
	for _, h := range all {
		dir := h.root
		for _, element := range strings.Split(strings.Trim(cgroup, "/"), "/") {
			if h.unified {
				delegateControllers(dir)
			}
			parent := dir
			dir = filepath.Join(dir, element)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if h.has("cpuset") {
				if err := inheritCPUSet(parent, dir); err != nil {
					return fmt.Errorf("make cgroup %s: %w", dir, err)
				}
			}
		}
	}
	return nil
}

// delegateControllers gives dir's children all of its controllers. Those that
// cannot be given are missed by the kubelet with a better message.
func delegateControllers(dir string) {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(available)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

// inheritCPUSet fills what a new cpuset of v1 has empty, and without which it
// takes no process.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(own)) != "" {
			continue
		}
		inherited, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), inherited, 0); err != nil {
			return err
		}
	}
	return nil
}

// joinCgroup moves the calling process into the cgroup in every hierarchy.
func joinCgroup(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		// 0 is the writer, whatever its number is in whichever namespace.
		if err := os.WriteFile(filepath.Join(h.root, cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup %s: %w", cgroup, err)
		}
	}
	return nil
}

// freezeCgroup stops every process in the cgroup and below, and returns once all
// stand still; or lets them run again.
func freezeCgroup(cgroup string, frozen bool) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		var file, order, status string
		switch {
		case h.unified && frozen:
			file, order, status = "cgroup.freeze", "1", "frozen 1"
		case h.unified:
			file, order, status = "cgroup.freeze", "0", "frozen 0"
		case h.has("freezer") && frozen:
			file, order, status = "freezer.state", "FROZEN", "FROZEN"
		case h.has("freezer"):
			file, order, status = "freezer.state", "THAWED", "THAWED"
		default:
			continue
		}
		dir := filepath.Join(h.root, cgroup)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(order), 0); err != nil {
			return fmt.Errorf("freeze cgroup %s: %w", cgroup, err)
		}
		return awaitFreezer(dir, h.unified, status)
	}
	return fmt.Errorf("freeze cgroup %s: this machine has no freezer", cgroup)
}

func awaitFreezer(dir string, unified bool, status string) error {
	file := filepath.Join(dir, "freezer.state")
	if unified {
		file = filepath.Join(dir, "cgroup.events")
	}
	var now []byte
	for range 100 {
		var err error
		if now, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("freeze cgroup: %w", err)
		}
		if strings.Contains(string(now), status) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("freeze cgroup %s: still %q", dir, strings.TrimSpace(string(now)))
}

func isFrozen(cgroup string) bool {
	all, err := hierarchies()
	if err != nil {
		return false
	}
	for _, h := range all {
		switch {
		case h.unified:
			order, _ := os.ReadFile(filepath.Join(h.root, cgroup, "cgroup.freeze")) // none: not frozen
			return strings.TrimSpace(string(order)) == "1"
		case h.has("freezer"):
			state, _ := os.ReadFile(filepath.Join(h.root, cgroup, "freezer.state")) // none: not frozen
			return strings.TrimSpace(string(state)) != "" && strings.TrimSpace(string(state)) != "THAWED"
		}
	}
	return false
}

// cgroupProcesses returns the processes in the cgroup and below.
func cgroupProcesses(cgroup string) ([]int, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.root, cgroup), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return ignoreGone(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return ignoreGone(err)
			}
			for _, field := range strings.Fields(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					found[pid] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", cgroup, err)
		}
	}
	var pids []int
	for pid := range found {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// ignoreGone absorbs that a cgroup vanished under the eyes of a walk.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// killCgroup kills every process in the cgroup and below, and returns when all
// are gone.
func killCgroup(cgroup string) error {
	for attempt := range 200 {
		pids, err := cgroupProcesses(cgroup)
		if err != nil {
			return err
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
		if len(pids) == 0 {
			return nil
		}
		if attempt%10 == 0 { // again, for those born meanwhile
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGKILL) // gone already, as wanted
			}
			thawAll(cgroup)
		}
		time.Sleep(25 * time.Millisecond)
	}
	pids, _ := cgroupProcesses(cgroup) // only to name them
	return fmt.Errorf("kill processes of cgroup %s: still there: %v", cgroup, pids)
}

// thawAll lets frozen processes die of the signal they were sent. A cgroup is
// also frozen by its children's own order, such as that of a paused container.
func thawAll(cgroup string) {
	all, err := hierarchies()
	if err != nil {
		return
	}
	for _, h := range all {
		_ = filepath.WalkDir(filepath.Join(h.root, cgroup), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil
			case entry.Name() == "freezer.state":
				_ = os.WriteFile(path, []byte("THAWED"), 0)
			case entry.Name() == "cgroup.freeze":
				_ = os.WriteFile(path, []byte("0"), 0)
			}
			return nil
		})
	}
}

// removeCgroup removes a cgroup without processes, and those below it.
func removeCgroup(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := removeCgroupDir(filepath.Join(h.root, cgroup)); err != nil {
			return err
		}
	}
	return nil
}

func removeCgroupDir(root string) error {
	var err error
	for range 40 {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs) // children first
		err = nil
		for _, dir := range dirs {
			if e := unix.Rmdir(dir); e != nil && !errors.Is(e, unix.ENOENT) {
				err = fmt.Errorf("remove cgroup %s: %w", dir, e)
			}
		}
		if err == nil {
			return nil
		}
		// The kernel counts processes as members for a moment after their death.
		time.Sleep(25 * time.Millisecond)
	}
	return err
}
