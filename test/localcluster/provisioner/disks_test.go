package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// These tests make real file systems, which takes root and xfsprogs.

func TestVolumeIsWritableFullAndThenGrows(t *testing.T) {
	d := openTestDisks(t)
	if _, err := d.create(t.Context(), "pv", smallestVolume); err != nil {
		t.Fatal(err)
	}
	requireOpenToAll(t, d.mountPoint("pv"))

	written := fill(t, filepath.Join(d.mountPoint("pv"), "big"))
	if written > smallestVolume {
		t.Fatalf("a volume of %d bytes took %d", smallestVolume, written)
	}

	if err := d.grow(t.Context(), "pv", 2*smallestVolume); err != nil {
		t.Fatalf("grow a full volume: %v", err)
	}
	if more := fill(t, filepath.Join(d.mountPoint("pv"), "more")); more < smallestVolume/2 {
		t.Fatalf("growth by %d bytes made room for %d", smallestVolume, more)
	}
}

func TestInterruptedCreateIsFinishedByTheNext(t *testing.T) {
	steps := map[string]func(t *testing.T, d *disks){
		"draft begun": func(t *testing.T, d *disks) {
			writeFile(t, d.image("pv")+".draft", "half a file system")
		},
		"image formatted": func(t *testing.T, d *disks) {
			must(t, d.format(t.Context(), "pv", smallestVolume))
		},
		"loop device attached": func(t *testing.T, d *disks) {
			must(t, d.format(t.Context(), "pv", smallestVolume))
			must(t, execute(t.Context(), "losetup", "--find", d.image("pv")))
		},
		"mounted": func(t *testing.T, d *disks) {
			must(t, d.format(t.Context(), "pv", smallestVolume))
			must(t, d.attach(t.Context(), "pv"))
		},
		"image extended": func(t *testing.T, d *disks) {
			must(t, d.format(t.Context(), "pv", smallestVolume))
			must(t, os.Truncate(d.image("pv"), smallestVolume+mebibyte))
		},
	}
	for name, interrupt := range steps {
		t.Run(name, func(t *testing.T) {
			d := openTestDisks(t)
			interrupt(t, d)
			size, err := d.create(t.Context(), "pv", smallestVolume)
			if err != nil {
				t.Fatal(err)
			}
			if size < smallestVolume {
				t.Fatalf("size %d, want at least %d", size, smallestVolume)
			}
			requireOpenToAll(t, d.mountPoint("pv"))
			if loops := loopsBelow(t, d.root); len(loops) != 1 {
				t.Fatalf("loop devices: %v, want one", loops)
			}
		})
	}
}

func TestDataOutlivesDetachAndAttach(t *testing.T) {
	d := openTestDisks(t)
	if _, err := d.create(t.Context(), "pv", smallestVolume); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.mountPoint("pv"), "file")
	writeFile(t, file, "kept")

	must(t, d.detach(t.Context(), "pv"))
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("detached, but: %v", err)
	}
	must(t, d.attach(t.Context(), "pv"))
	got, err := os.ReadFile(file)
	if err != nil || string(got) != "kept" {
		t.Fatalf("read %q, %v", got, err)
	}
}

func TestRemoveLeavesNothingEvenInUse(t *testing.T) {
	d := openTestDisks(t)
	if _, err := d.create(t.Context(), "pv", smallestVolume); err != nil {
		t.Fatal(err)
	}
	inUse, err := os.Create(filepath.Join(d.mountPoint("pv"), "file"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, as after a lost answer
		must(t, d.remove(t.Context(), "pv"))
	}
	if entries, _ := os.ReadDir(d.root); len(entries) > 0 {
		t.Errorf("left: %v", entries)
	}
	inUse.Close()
	if loops := loopsBelow(t, d.root); len(loops) > 0 {
		t.Errorf("left: %v", loops)
	}
}

func TestPresentNamesWhatIsAttached(t *testing.T) {
	d := openTestDisks(t)
	for _, name := range []string{"mounted", "detached", "loop"} {
		must(t, d.format(t.Context(), name, smallestVolume))
	}
	must(t, d.attach(t.Context(), "mounted"))
	must(t, execute(t.Context(), "losetup", "--find", d.image("loop")))

	got, err := d.present()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"loop", "mounted"}; !slices.Equal(got, want) {
		t.Fatalf("present: %v, want %v", got, want)
	}
}

func TestGrowNeverCreates(t *testing.T) {
	d := openTestDisks(t)
	if err := d.grow(t.Context(), "pv", smallestVolume); err == nil {
		t.Fatal("grew a volume that does not exist")
	}
	if _, err := d.size("pv"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("size: %v", err)
	}
}

// openTestDisks returns disks that are gone after the test.
func openTestDisks(t *testing.T) *disks {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		t.Skip("xfsprogs is not installed")
	}
	d, err := openDisks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		names, err := d.present()
		if err != nil {
			t.Error(err)
		}
		for _, name := range names {
			// The test's own context has ended.
			if err := d.detach(context.Background(), name); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

// fill writes to path until the volume is full, and returns how much it took.
func fill(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block, written := bytes.Repeat([]byte("x"), mebibyte), 0
	for written < 1<<31 {
		n, err := f.Write(block)
		written += n
		if errors.Is(err, syscall.ENOSPC) {
			return written
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the volume does not get full")
	return 0
}

func requireOpenToAll(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeDir|0o777 {
		t.Fatalf("mode %v, want any user to write", info.Mode())
	}
}

func loopsBelow(t *testing.T, dir string) []loop {
	t.Helper()
	loops, err := attachedLoops()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(loops, func(l loop) bool { return filepath.Dir(l.file) != dir })
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
