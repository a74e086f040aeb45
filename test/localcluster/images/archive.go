package images

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// assemble returns an image for this machine's architecture. It says nothing of
// the time at which it was made, so that the same input gives the same image.
func assemble(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: runtime.GOARCH,
		Config:       config,
		RootFS:       v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layers...)
}

// writeArchive writes img to tarPath under the full name imageName, for example
// docker.io/library/postgres:17. Until the archive is complete and on disk,
// tarPath stays as it was.
func writeArchive(tarPath, imageName string, img v1.Image) error {
	tag, err := name.NewTag(imageName, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("write image archive %s: %w", tarPath, err)
	}
	err = replaceFile(tarPath, func(w io.Writer) error { return tarball.Write(tag, img, w) })
	if err != nil {
		return fmt.Errorf("write image archive %s: %w", tarPath, err)
	}
	return nil
}

// replaceFile gives path the content that write produces, or leaves it alone.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no such file after the rename, as wanted
	defer f.Close()           // a second close is harmless

	if err := write(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// storedLayer is a layer that is kept as a plain tar stream. Invariant: open
// gives the same bytes every time.
type storedLayer struct {
	open func() (io.ReadCloser, error)
	sum  func() (layerSum, error)
}

type layerSum struct {
	hash v1.Hash
	size int64
}

var _ v1.Layer = (*storedLayer)(nil)

func newStoredLayer(open func() (io.ReadCloser, error)) *storedLayer {
	return &storedLayer{open: open, sum: sync.OnceValues(func() (layerSum, error) { return sumOf(open) })}
}

// fileLayer is the layer of the tar file at path.
func fileLayer(path string) *storedLayer {
	return newStoredLayer(func() (io.ReadCloser, error) { return os.Open(path) })
}

func sumOf(open func() (io.ReadCloser, error)) (layerSum, error) {
	r, err := open()
	if err != nil {
		return layerSum{}, err
	}
	defer r.Close()
	h := sha256.New()
	size, err := io.Copy(h, r)
	if err != nil {
		return layerSum{}, err
	}
	return layerSum{hash: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}, size: size}, nil
}

func (l *storedLayer) Digest() (v1.Hash, error) {
	s, err := l.sum()
	return s.hash, err
}

// DiffID equals Digest, as what is stored is what gets unpacked.
func (l *storedLayer) DiffID() (v1.Hash, error) { return l.Digest() }

func (l *storedLayer) Size() (int64, error) {
	s, err := l.sum()
	return s.size, err
}

func (l *storedLayer) Compressed() (io.ReadCloser, error)   { return l.open() }
func (l *storedLayer) Uncompressed() (io.ReadCloser, error) { return l.open() }

func (l *storedLayer) MediaType() (types.MediaType, error) {
	return types.DockerUncompressedLayer, nil
}
