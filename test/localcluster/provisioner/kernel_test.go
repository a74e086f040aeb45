package main

import (
	"slices"
	"testing"
)

func TestParseMountinfo(t *testing.T) {
	table := `25 1 254:0 / / rw,relatime - ext4 /dev/root rw
36 25 98:0 /mnt1 /mnt/with\040space rw,noatime master:1 shared:7 - xfs /dev/loop3 rw,errors=continue
37 25 0:5 / /dev rw - devtmpfs none rw
`
	got, err := parseMountinfo(table)
	if err != nil {
		t.Fatal(err)
	}
	want := []mount{{"/", "/dev/root"}, {"/mnt/with space", "/dev/loop3"}, {"/dev", "none"}}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestParseMountinfoRefusesWhatItDoesNotKnow(t *testing.T) {
	if _, err := parseMountinfo("36 35 98:0 /mnt1\n"); err == nil {
		t.Fatal("no error")
	}
}

func TestBackingFile(t *testing.T) {
	for attribute, want := range map[string]string{
		"/v/pv.img\n":           "/v/pv.img",
		"/v/pv.img (deleted)\n": "/v/pv.img",
	} {
		if got := backingFile(attribute); got != want {
			t.Errorf("%q: got %q, want %q", attribute, got, want)
		}
	}
}
