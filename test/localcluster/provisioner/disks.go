package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// disks are the volumes below one directory. Its methods may be called at the
// same time for different volumes.
type disks struct{ root string }

// openDisks makes the directory if it's not there.
func openDisks(root string) (*disks, error) {
	if root == "" {
		return nil, errors.New("no directory for the volumes is given")
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("open volumes %s: %w", root, err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("open volumes %s: %w", root, err)
	}
	// The kernel reports mount points without symbolic links.
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("open volumes %s: %w", root, err)
	}
	return &disks{root: real}, nil
}

func (d *disks) image(name string) string      { return filepath.Join(d.root, name+".img") }
func (d *disks) mountPoint(name string) string { return filepath.Join(d.root, name) }

// create makes sure that the volume, which nobody uses yet, exists with at least
// size bytes and is mounted for anyone to write. It returns its actual size.
func (d *disks) create(ctx context.Context, name string, size int64) (int64, error) {
	found, err := d.size(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = d.format(ctx, name, size)
	case err != nil:
		return 0, err
	case found < size:
		err = d.grow(ctx, name, size)
	}
	if err != nil {
		return 0, err
	}
	if err := d.attach(ctx, name); err != nil {
		return 0, err
	}
	// No sticky bit: it would keep a group's members from replacing each other's
	// files, which real disks let them.
	if err := os.Chmod(d.mountPoint(name), 0o777); err != nil {
		return 0, err
	}
	return max(found, size), nil
}

// size is that of the volume's device; fs.ErrNotExist means no such volume.
func (d *disks) size(name string) (int64, error) {
	info, err := os.Stat(d.image(name))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// format makes the volume's image. A process killed on the way leaves no image,
// only a draft that the next one overwrites.
func (d *disks) format(ctx context.Context, name string, size int64) error {
	draft := d.image(name) + ".draft"
	if err := writeSparse(draft, size); err != nil {
		return err
	}
	// A new sparse file has nothing to discard.
	if err := execute(ctx, "mkfs.xfs", "-q", "-K", draft); err != nil {
		return err
	}
	return os.Rename(draft, d.image(name))
}

func writeSparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// attach mounts the volume unless it's mounted.
func (d *disks) attach(ctx context.Context, name string) error {
	device, err := d.mountedDevice(name)
	if err != nil || device != "" {
		return err
	}
	// Before there is a mount point, which pods would fill in the volume's place.
	if _, err := d.size(name); err != nil {
		return err
	}
	if err := d.detachLoops(ctx, name); err != nil {
		return err
	}
	if err := os.MkdirAll(d.mountPoint(name), 0o755); err != nil {
		return err
	}
	// Direct I/O: else every page is cached twice, and a flush takes twice as long.
	output, err := output(ctx, "losetup", "--find", "--show", "--direct-io=on", d.image(name))
	if err != nil {
		return err
	}
	device = strings.TrimSpace(output)
	mountErr := execute(ctx, "mount", "-t", "xfs", device, d.mountPoint(name))
	// From now on the device goes when its last user does.
	detachErr := execute(context.WithoutCancel(ctx), "losetup", "--detach", device)
	return errors.Join(mountErr, detachErr)
}

// grow makes the mounted volume at least size bytes large. It never shrinks.
func (d *disks) grow(ctx context.Context, name string, size int64) error {
	if err := d.attach(ctx, name); err != nil {
		return err
	}
	found, err := d.size(name)
	if err != nil {
		return err
	}
	if found < size {
		if err := os.Truncate(d.image(name), size); err != nil {
			return err
		}
	}
	// Also where the image is large enough: whoever made it so may have been
	// killed before the next steps.
	device, err := d.mountedDevice(name)
	if err != nil {
		return err
	}
	if err := execute(ctx, "losetup", "--set-capacity", device); err != nil {
		return err
	}
	return execute(ctx, "xfs_growfs", "-d", d.mountPoint(name))
}

// remove deletes the volume and what is in it. It is done, too, if there is no
// such volume.
func (d *disks) remove(ctx context.Context, name string) error {
	if err := d.detach(ctx, name); err != nil {
		return err
	}
	for _, path := range []string{d.image(name), d.image(name) + ".draft"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// detach unmounts the volume and keeps its image.
func (d *disks) detach(ctx context.Context, name string) error {
	for {
		device, err := d.mountedDevice(name)
		if err != nil {
			return err
		}
		if device == "" {
			break
		}
		// Lazily: whoever is inside keeps what is open, and loses nothing.
		if err := unix.Unmount(d.mountPoint(name), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", d.mountPoint(name), err)
		}
	}
	if err := d.detachLoops(ctx, name); err != nil {
		return err
	}
	// Never more than the empty mount point.
	if err := os.Remove(d.mountPoint(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// detachLoops frees the devices that a killed run left without a mount.
func (d *disks) detachLoops(ctx context.Context, name string) error {
	loops, err := attachedLoops()
	if err != nil {
		return err
	}
	for _, l := range loops {
		if l.file != d.image(name) {
			continue
		}
		if err := execute(ctx, "losetup", "--detach", l.device); err != nil {
			return err
		}
	}
	return nil
}

// mountedDevice is the device that is mounted at the volume's place, if any.
func (d *disks) mountedDevice(name string) (string, error) {
	mounts, err := currentMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.point == d.mountPoint(name) {
			return m.source, nil
		}
	}
	return "", nil
}

// present names the volumes that are attached in any way, in order. Images of
// detached volumes are not among them.
func (d *disks) present() ([]string, error) {
	mounts, err := currentMounts()
	if err != nil {
		return nil, err
	}
	loops, err := attachedLoops()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range mounts {
		if filepath.Dir(m.point) == d.root {
			names = append(names, filepath.Base(m.point))
		}
	}
	for _, l := range loops {
		if name, isImage := strings.CutSuffix(filepath.Base(l.file), ".img"); isImage && filepath.Dir(l.file) == d.root {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func execute(ctx context.Context, program string, args ...string) error {
	_, err := output(ctx, program, args...)
	return err
}

// output returns what the program printed; an error says what it complained of.
func output(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
