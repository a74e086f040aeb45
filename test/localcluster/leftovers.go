package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	point, fsType, superOptions string
	// shared means that mounts below it reach other mount namespaces.
	shared bool
}

func readMounts() ([]mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMounts(string(content)), nil
}

// parseMounts skips what is no mountinfo line.
func parseMounts(content string) []mount {
	var mounts []mount
	for _, line := range strings.Split(content, "\n") {
		fields := strings.Fields(line)
		separator := slices.Index(fields, "-")
		if separator < 6 || len(fields) < separator+4 {
			continue
		}
		m := mount{point: unescapeMount(fields[4]), fsType: fields[separator+1], superOptions: fields[separator+3]}
		for _, optional := range fields[6:separator] {
			m.shared = m.shared || strings.HasPrefix(optional, "shared:")
		}
		mounts = append(mounts, m)
	}
	return mounts
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescapeMount(path string) string { return mountEscapes.Replace(path) }

// mountsBelow returns the mount points at dir and below, each as often as it is
// mounted, in the order in which they must be unmounted.
func mountsBelow(mounts []mount, dir string) []string {
	var points []string
	for _, m := range mounts {
		if isBelow(m.point, dir) {
			points = append(points, m.point)
		}
	}
	slices.Reverse(points)
	return points
}

func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// unmountBelow unmounts everything at dir and below.
func unmountBelow(dir string) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, point := range mountsBelow(mounts, dir) {
		err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			// Somebody's shell stands there. It may keep the file system, but the
			// tree goes.
			err = unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not mounted any more
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// loopsBelow returns the loop devices whose files are below dir; sys is /sys.
func loopsBelow(sys fs.FS, dir string) ([]string, error) {
	files, err := fs.Glob(sys, "block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, file := range files {
		content, err := fs.ReadFile(sys, file)
		if err != nil {
			continue // freed meanwhile
		}
		backing := strings.TrimSuffix(strings.TrimSpace(string(content)), " (deleted)")
		if isBelow(backing, dir) {
			devices = append(devices, filepath.Join("/dev", strings.Split(file, "/")[1]))
		}
	}
	return devices, nil
}

// freeLoopsBelow frees every loop device whose file is below dir.
func freeLoopsBelow(dir string) error {
	devices, err := loopsBelow(os.DirFS("/sys"), dir)
	if err != nil {
		return fmt.Errorf("list loop devices: %w", err)
	}
	for _, device := range devices {
		if err := freeLoop(device); err != nil {
			return fmt.Errorf("free %s: %w", device, err)
		}
	}
	return nil
}

func freeLoop(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil // free already
	}
	return err
}
