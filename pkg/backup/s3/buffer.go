package s3

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync"
)

// buffer holds a part until the service has it. It takes no more memory than
// the part does, in chunks that are used again.
type buffer struct {
	chunks []*chunk
	size   int64
	hash   hash.Hash
}

const chunkSize = 1 << 20

type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// fill reads until it has that many bytes or content ends, and says whether it
// did end.
func (b *buffer) fill(content io.Reader, most int64) (ended bool, err error) {
	b.size, b.hash = 0, sha256.New()
	for n := 0; b.size < most; n++ {
		if n == len(b.chunks) {
			b.chunks = append(b.chunks, chunks.Get().(*chunk))
		}
		into := b.chunks[n][:min(chunkSize, most-b.size)]
		read, err := io.ReadFull(content, into)
		b.size += int64(read)
		_, _ = b.hash.Write(into[:read]) // it never fails
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// reader reads what was filled in, and can be rewound for another try.
func (b *buffer) reader() *io.SectionReader { return io.NewSectionReader(b, 0, b.size) }

// checksum is the one that requests are signed with.
func (b *buffer) checksum() string { return hex.EncodeToString(b.hash.Sum(nil)) }

// ReadAt implements io.ReaderAt.
func (b *buffer) ReadAt(p []byte, at int64) (int, error) {
	read := 0
	for read < len(p) && at < b.size {
		n := copy(p[read:], b.chunks[at/chunkSize][at%chunkSize:min(chunkSize, b.size-at/chunkSize*chunkSize)])
		read, at = read+n, at+int64(n)
	}
	if read < len(p) {
		return read, io.EOF
	}
	return read, nil
}

// free gives the chunks to other uploads. It must not be called after a request
// that failed: its connection may still be reading them.
func (b *buffer) free() {
	for _, c := range b.chunks {
		chunks.Put(c)
	}
	b.chunks = nil
}
