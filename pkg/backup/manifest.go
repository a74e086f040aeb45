package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// manifest is what is read of the server's backup_manifest.
type manifest struct {
	WAL []WALRange
	// Files and Size are the number of files and their bytes.
	Files int
	Size  int64
}

// parseManifest reads a manifest, which may be large, file by file.
func parseManifest(text io.Reader) (manifest, error) {
	var m manifest
	decoder := json.NewDecoder(text)
	if err := m.readObject(decoder); err != nil {
		return manifest{}, fmt.Errorf("parse backup_manifest: %w", err)
	}
	if len(m.WAL) == 0 {
		return manifest{}, errors.New("parse backup_manifest: it names no WAL")
	}
	return m, nil
}

func (m *manifest) readObject(decoder *json.Decoder) error {
	if err := expect(decoder, '{'); err != nil {
		return err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		switch key {
		case "Files":
			err = m.readFiles(decoder)
		case "WAL-Ranges":
			err = m.readRanges(decoder)
		default:
			var skipped json.RawMessage
			err = decoder.Decode(&skipped)
		}
		if err != nil {
			return err
		}
	}
	return expect(decoder, '}')
}

func (m *manifest) readFiles(decoder *json.Decoder) error {
	if err := expect(decoder, '['); err != nil {
		return err
	}
	for decoder.More() {
		var file struct{ Size int64 }
		if err := decoder.Decode(&file); err != nil {
			return err
		}
		m.Files++
		m.Size += file.Size
	}
	return expect(decoder, ']')
}

func (m *manifest) readRanges(decoder *json.Decoder) error {
	var ranges []struct {
		Timeline uint32
		Start    Position `json:"Start-LSN"`
		End      Position `json:"End-LSN"`
	}
	if err := decoder.Decode(&ranges); err != nil {
		return err
	}
	for _, r := range ranges {
		m.WAL = append(m.WAL, WALRange{Timeline: r.Timeline, Start: r.Start, End: r.End})
	}
	slices.SortFunc(m.WAL, byTimeline)
	return nil
}

func expect(decoder *json.Decoder, want json.Delim) error {
	got, err := decoder.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("found %v where %v belongs", got, want)
	}
	return nil
}
