package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of the kernel's table of mounts.
type mount struct {
	point  string
	source string
}

// currentMounts lists the mounts that this process sees. Where one hides
// another, the later one is on top.
func currentMounts() ([]mount, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return parseMountinfo(string(table))
}

// parseMountinfo reads the format of proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw,errors=continue
func parseMountinfo(table string) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(table) {
		// Any number of optional fields ends with a lone dash.
		before, after, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("parse mounts: unexpected line %q", line)
		}
		mounts = append(mounts, mount{point: unescape(left[4]), source: unescape(right[1])})
	}
	return mounts, nil
}

// unescape undoes the kernel's \040 for a space, and its like.
func unescape(field string) string {
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) {
			if code, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(field[i])
	}
	return out.String()
}

// loop is a loop device and the file behind it.
type loop struct {
	device string
	file   string
}

func attachedLoops() ([]loop, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var loops []loop
	for _, path := range files {
		file, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // detached since, as nothing stops others from doing
		}
		if err != nil {
			return nil, fmt.Errorf("list loop devices: %w", err)
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(path)))
		loops = append(loops, loop{device: device, file: backingFile(string(file))})
	}
	return loops, nil
}

// backingFile is the path of a loop device's file, also when it's deleted.
func backingFile(attribute string) string {
	return strings.TrimSuffix(strings.TrimSuffix(attribute, "\n"), " (deleted)")
}
