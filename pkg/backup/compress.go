package backup

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// window is how far back compression looks. Readers need that much memory, and
	// writers some times more.
	window = 1 << 20
	// blockSize is how much content a frame of zstd has, in bytes, but for the last one.
	blockSize = 2 << 20
)

// encoder is shared: it compresses as many blocks at the same time as there are
// processors. WAL and table pages are compressed as fast as may be: the time until a
// segment is archived counts for more than its size. Frames have no checksum of their own:
// the seal has one of the content.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	// Errors come from the options alone, which are right.
	e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window), zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
	return e
})

// blocks are buffers of blockSize, for content and for frames.
var blocks = sync.Pool{New: func() any {
	block := make([]byte, 0, blockSize)
	return &block
}}

// compressor writes what it is given as frames of zstd, which together are what one
// frame would be: `zstd -d` takes them for one file. A block is compressed while the next
// one is read and the one before is sent. It ends with Close.
type compressor struct {
	to    io.Writer
	block *[]byte
	// frames are those under way, in order.
	frames chan chan *[]byte
	// failed is closed when err is valid, and ended once nothing is written any more.
	failed, ended chan struct{}
	err           error
	begun         bool
}

func newCompressor(to io.Writer) *compressor {
	const queued = 1 // beside the one that is being sent, and the one that is being read
	c := &compressor{to: to, block: blocks.Get().(*[]byte), frames: make(chan chan *[]byte, queued), failed: make(chan struct{}), ended: make(chan struct{})}
	go c.send()
	return c
}

// send writes frames in order. After an error it lets the others go.
func (c *compressor) send() {
	defer close(c.ended)
	for done := range c.frames {
		frame := <-done
		if c.err == nil {
			if _, c.err = c.to.Write(*frame); c.err != nil {
				close(c.failed)
			}
		}
		recycle(frame)
	}
}

// Write compresses. Its errors are those of writing what came before.
func (c *compressor) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), blockSize-len(*c.block))
		*c.block = append(*c.block, p[:n]...)
		p, written = p[n:], written+n
		if len(*c.block) < blockSize {
			break
		}
		if err := c.compress(); err != nil {
			return written, err
		}
	}
	return written, nil
}

// compress begins to compress the block, once there is room for another.
func (c *compressor) compress() error {
	block, done := c.block, make(chan *[]byte, 1)
	select {
	case <-c.failed:
		return c.err
	case c.frames <- done:
	}
	c.block, c.begun = blocks.Get().(*[]byte), true
	go func() {
		frame := blocks.Get().(*[]byte)
		*frame = encoder().EncodeAll(*block, *frame)
		recycle(block)
		done <- frame
	}()
	return nil
}

// Close returns when everything is written, or with the first error. Another one does
// nothing more.
func (c *compressor) Close() error {
	if c.block == nil {
		return c.err
	}
	if len(*c.block) > 0 || !c.begun { // without any content there is a frame of none
		_ = c.compress() // it is c.err
	}
	recycle(c.block)
	c.block = nil
	close(c.frames)
	<-c.ended
	return c.err
}

func recycle(block *[]byte) {
	*block = (*block)[:0]
	blocks.Put(block)
}
