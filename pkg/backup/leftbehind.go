package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pgop/postgres-operator/pkg/postgres"
)

// isLeftBehind says whether a segment of pg_wal is the one in which its timeline
// was left for another that the server knows of, or comes after that. With
// archive_mode = always a standby wants it archived under its full name, and what
// comes after the switch is what happened to be in the file, or what a former
// primary wrote that nobody has received. Each instance may have other content, and
// no recovery that goes on to the later timeline reads any: it has that segment on
// its own.
func isLeftBehind(dir string, name WALName, segmentSize uint64) (bool, error) {
	file, ok := postgres.ParseWALFile(name.Text, segmentSize)
	if !ok {
		return false, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("look for histories of timelines: %w", err)
	}
	for _, entry := range entries {
		later, err := ParseWALName(entry.Name())
		if err != nil || later.Kind != History || later.Timeline <= name.Timeline {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("look for histories of timelines: %w", err)
		}
		history, err := postgres.ParseHistory(string(text))
		if err != nil {
			return false, fmt.Errorf("read %s: %w", entry.Name(), err)
		}
		for _, s := range history {
			if s.Timeline == name.Timeline && s.LSN < file.Start+postgres.LSN(segmentSize) {
				return true, nil
			}
		}
	}
	return false, nil
}
