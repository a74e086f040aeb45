package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestRestoreMountsTheKnownAndDetachesTheRest(t *testing.T) {
	d := openTestDisks(t)
	for _, name := range []string{"lost", "mounted", "unknown", "retained"} {
		must(t, d.format(t.Context(), name, smallestVolume))
	}
	must(t, d.attach(t.Context(), "mounted"))
	must(t, d.attach(t.Context(), "unknown"))
	writeFile(t, filepath.Join(d.mountPoint("mounted"), "file"), "kept")

	must(t, restore(t.Context(), d, listerOf(t, "lost", "mounted", "without-image")))

	present, err := d.present()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"lost", "mounted"}; !slices.Equal(present, want) {
		t.Errorf("present: %v, want %v", present, want)
	}
	if _, err := os.Stat(d.mountPoint("without-image")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a volume without an image has a place to write to: %v", err)
	}
	for _, path := range []string{filepath.Join(d.mountPoint("mounted"), "file"), d.image("unknown"), d.image("retained")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestVolumeNamesAreOnlyOurs(t *testing.T) {
	foreign := pv("1Gi")
	foreign.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "someone.else/disk"}
	got := volumeNames([]*corev1.PersistentVolume{foreign, ours("b"), ours("a")})
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func ours(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisionerName},
	}}
}

func listerOf(t *testing.T, names ...string) listers.PersistentVolumeLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range names {
		must(t, indexer.Add(ours(name)))
	}
	return listers.NewPersistentVolumeLister(indexer)
}
