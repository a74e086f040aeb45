package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestStoreGivesCopiesOfIndexesAndLinksToBlobs(t *testing.T) {
	store := imageStore{dir: t.TempDir()}
	n := testNode(1)
	n.cluster.state = t.TempDir()
	blob := filepath.Join(contentDir, "blobs", "sha256", "abc")
	for _, file := range append([]string{blob, filepath.Join(snapshotsDir, "7", "fs", "bin", "x")}, storeIndexes...) {
		if err := writeFile(filepath.Join(store.dir, "root", file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.giveTo(n); err != nil {
		t.Fatal(err)
	}
	same := func(file string) bool {
		a, errA := os.Stat(filepath.Join(store.dir, "root", file))
		b, errB := os.Stat(n.dir("containerd", file))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		return os.SameFile(a, b)
	}
	if !same(blob) {
		t.Error("the blob was copied")
	}
	for _, index := range storeIndexes {
		if same(index) {
			t.Errorf("the node would write to the store's %s", index)
		}
	}
	got, err := store.layersFor(n)
	if err != nil {
		t.Fatal(err)
	}
	want := []bind{{Source: filepath.Join(store.dir, "root", snapshotsDir, "7"), Target: n.dir("containerd", snapshotsDir, "7"), ReadOnly: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNamelessImages(t *testing.T) {
	got := namelessImages(`REF                           TYPE   DIGEST     SIZE
docker.io/library/operator:dev  x/y    sha256:new 9.0 MiB linux/amd64
docker.io/library/postgres:17   x/y    sha256:pg  180 MiB linux/amd64
sha256:id-of-new                x/y    sha256:new 9.0 MiB linux/amd64
sha256:id-of-old                x/y    sha256:old 9.0 MiB linux/amd64
sha256:id-of-pg                 x/y    sha256:pg  180 MiB linux/amd64
`)
	if want := []string{"sha256:id-of-old"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
