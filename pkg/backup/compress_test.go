package backup

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Content of any size, written in any pieces, is what readers of zstd get.
func TestCompressedInBlocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 7} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32() & 3 << (i / blockSize)) // blocks that differ
		}
		var stored bytes.Buffer
		c := newCompressor(&stored)
		for rest := content; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(blockSize))
			if written, err := c.Write(rest[:n]); written != n || err != nil {
				t.Fatalf("%d bytes: wrote %d of %d: %v", size, written, n, err)
			}
			rest = rest[n:]
		}
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		reader, err := zstd.NewReader(&stored)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reader)
		reader.Close()
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: got %d: %v", size, len(got), err)
		}
	}
}

// failsAfter is a writer that takes so many frames.
type failsAfter struct{ frames int }

var errFull = errors.New("full")

func (f *failsAfter) Write(p []byte) (int, error) {
	if f.frames--; f.frames < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// Whoever writes learns that nothing takes it any more, and is never kept.
func TestCompressorThatNothingTakes(t *testing.T) {
	for frames := range 4 {
		c := newCompressor(&failsAfter{frames})
		var err error
		for range frames + 8 {
			if _, err = c.Write(make([]byte, blockSize)); err != nil {
				break
			}
		}
		if !errors.Is(err, errFull) || !errors.Is(c.Close(), errFull) || !errors.Is(c.Close(), errFull) {
			t.Errorf("after %d frames: %v", frames, err)
		}
	}
}
