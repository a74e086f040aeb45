package backup

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
)

// Seal is what the end of an object says of it. An object is the compressed
// content, and then the seal in a frame that zstd skips, so that
// `zstd -d` gives the content back. It stands at the end because it is known
// only there, and because an object that was cut off has none.
type Seal struct {
	// Name is the object's key below the layout's root, without its suffix.
	Name string `json:"name"`
	// System is the identifier of the database system.
	System string `json:"system"`
	// Size is that of the content, in bytes.
	Size int64 `json:"size"`
	// SHA256 is the content's, in hexadecimal digits.
	SHA256 string `json:"sha256"`
}

const (
	// sealSize is that of the whole frame, which always has the same.
	sealSize   = 512
	sealHeader = 8
	// sealMagic begins a frame that is skipped.
	sealMagic = 0x184D2A5D
)

// encode renders the frame.
func (s Seal) encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(text) > sealSize-sealHeader {
		return nil, fmt.Errorf("the name %q is too long for a seal", s.Name)
	}
	frame := bytes.Repeat([]byte{' '}, sealSize)
	binary.LittleEndian.PutUint32(frame, sealMagic)
	binary.LittleEndian.PutUint32(frame[4:], sealSize-sealHeader)
	copy(frame[sealHeader:], text)
	return frame, nil
}

var errNoSeal = errors.New("it has no seal at its end: it was cut off, or is of another kind")

// parseSeal reads the frame.
func parseSeal(frame []byte) (Seal, error) {
	if len(frame) != sealSize || binary.LittleEndian.Uint32(frame) != sealMagic || binary.LittleEndian.Uint32(frame[4:]) != sealSize-sealHeader {
		return Seal{}, errNoSeal
	}
	var seal Seal
	if err := json.Unmarshal(frame[sealHeader:], &seal); err != nil {
		return Seal{}, fmt.Errorf("its seal can't be read: %w", err)
	}
	return seal, nil
}

// check says how an object that was read differs from what its seal says, or
// from what was asked for.
func (s Seal) check(name, system string, size int64, sum hash.Hash) error {
	switch {
	case s.Name != name:
		return fmt.Errorf("it is %s", s.Name)
	case s.System != system:
		return fmt.Errorf("it is of the system %s, not %s", s.System, system)
	case s.Size != size:
		return fmt.Errorf("it holds %d bytes, not %d", size, s.Size)
	case s.SHA256 != hexSum(sum):
		return errors.New("its checksum is another")
	}
	return nil
}

func hexSum(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }
