package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// officialUID is both the user and the group id of postgres in the Docker
// Official image.
const officialUID = 999

// chownVersion has to change whenever chownLayer's result does.
const chownVersion = 1

// PostgresUIDName is the name of the image that EnsurePostgresUID makes.
func PostgresUIDName(major, uid int) string { return fmt.Sprintf("%s-uid%d", PostgresName(major), uid) }

// EnsurePostgresUID returns the archive of EnsurePostgres's image with another
// user and group id for postgres, as vendors other than Docker have: one more
// layer, which changes the account and what belongs to it.
func EnsurePostgresUID(ctx context.Context, cacheDir string, major, uid int, progress func(format string, args ...any)) (tarPath string, err error) {
	base, err := EnsurePostgres(ctx, cacheDir, major, progress)
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("%s-v%d", strings.TrimSuffix(filepath.Base(base), ".tar"), chownVersion)
	return ensureCached(ctx, cacheDir, fmt.Sprintf("postgres-%d-uid%d", major, uid), key, func(tarPath string) error {
		return makeUIDVariant(base, PostgresUIDName(major, uid), uid, tarPath)
	})
}

func makeUIDVariant(base, name string, uid int, tarPath string) error {
	layer, config, err := readSingleLayer(base)
	if err != nil {
		return fmt.Errorf("make image %s from %s: %w", name, base, err)
	}
	change, err := chownLayer(layer, uid)
	if err != nil {
		return fmt.Errorf("make image %s from %s: %w", name, base, err)
	}
	img, err := assemble(config, layer, change)
	if err != nil {
		return fmt.Errorf("make image %s from %s: %w", name, base, err)
	}
	return writeArchive(tarPath, name, img)
}

// readSingleLayer returns what an archive of assemble's was assembled from.
func readSingleLayer(tarPath string) (*storedLayer, v1.Config, error) {
	img, err := tarball.ImageFromPath(tarPath, nil)
	if err != nil {
		return nil, v1.Config{}, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, v1.Config{}, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, v1.Config{}, err
	}
	if len(layers) != 1 {
		return nil, v1.Config{}, fmt.Errorf("%d layers instead of one", len(layers))
	}
	// As read back, the layer would be compressed on its way into an archive.
	return newStoredLayer(layers[0].Uncompressed), file.Config, nil
}

// chownLayer returns a layer that gives everything in base that belongs to
// postgres, and the account itself, the id uid.
func chownLayer(base *storedLayer, uid int) (*storedLayer, error) {
	r, err := base.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()

	var changed bytes.Buffer
	in, out := tar.NewReader(r), tar.NewWriter(&changed)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := copyChanged(out, header, in, uid); err != nil {
			return nil, fmt.Errorf("change owner of %s: %w", header.Name, err)
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return newStoredLayer(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(changed.Bytes())), nil
	}), nil
}

// copyChanged writes an entry to out if the new id changes it.
func copyChanged(out *tar.Writer, header *tar.Header, content io.Reader, uid int) error {
	account := isAccountFile(header.Name)
	if !account && header.Uid != officialUID && header.Gid != officialUID {
		return nil
	}
	body, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if account {
		body = renumberPostgres(body, uid)
	}
	changed := *header
	changed.Size = int64(len(body))
	if changed.Uid == officialUID {
		changed.Uid = uid
	}
	if changed.Gid == officialUID {
		changed.Gid = uid
	}
	if err := out.WriteHeader(&changed); err != nil {
		return err
	}
	_, err = out.Write(body)
	return err
}

func isAccountFile(name string) bool {
	switch path.Clean("/" + name) {
	case "/etc/passwd", "/etc/group":
		return true
	}
	return false
}

// renumberPostgres changes the ids in postgres's line of /etc/passwd or
// /etc/group.
func renumberPostgres(file []byte, uid int) []byte {
	lines := strings.Split(string(file), "\n")
	for i, line := range lines {
		fields := strings.Split(line, ":")
		if fields[0] != "postgres" {
			continue
		}
		for j, field := range fields {
			if field == strconv.Itoa(officialUID) {
				fields[j] = strconv.Itoa(uid)
			}
		}
		lines[i] = strings.Join(fields, ":")
	}
	return []byte(strings.Join(lines, "\n"))
}
