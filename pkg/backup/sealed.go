package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

var decoders = sync.Pool{New: func() any {
	decoder, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8*window))
	return decoder
}}

// name is what the seal of an object says: its key below the root.
func (l Layout) name(key string) string {
	return strings.TrimSuffix(strings.TrimPrefix(key, l.root()+"/"), stored)
}

// Stored is what is known of an object once it is in the store.
type Stored struct {
	Seal
	// Stored is its size in the store, in bytes.
	Stored int64
}

// upload compresses what is written to it, seals it, and sends it to the store
// at the same time. It ends with finish or abort.
type upload struct {
	ctx        context.Context
	repository *Repository

	seal    Seal
	key     string
	content *compressor
	sum     hash.Hash
	pipe    *counter
	done    chan error
}

// begin begins an upload.
func (r *Repository) begin(ctx context.Context, key string) *upload {
	reader, writer := io.Pipe()
	u := &upload{ctx: ctx, repository: r, seal: Seal{Name: r.layout.name(key), System: r.layout.SystemID}, key: key,
		sum: sha256.New(), pipe: &counter{PipeWriter: writer}, done: make(chan error, 1)}
	u.content = newCompressor(u.pipe)
	go func() {
		err := r.store.Create(ctx, key, reader)
		// Whoever writes learns of it at once.
		_ = reader.CloseWithError(orElse(err, io.ErrClosedPipe)) // it never fails
		u.done <- err
	}()
	return u
}

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Write compresses and sends. Its errors may be the store's.
func (u *upload) Write(p []byte) (int, error) {
	n, err := u.content.Write(p)
	_, _ = u.sum.Write(p[:n]) // it never fails
	u.seal.Size += int64(n)
	return n, err
}

// finish returns when the object is in the store, or with the store's error.
func (u *upload) finish() (Stored, error) {
	err := u.content.Close()
	if err == nil {
		err = u.writeSeal()
	}
	if err != nil {
		return Stored{}, u.abort(err)
	}
	size := u.pipe.count
	_ = u.pipe.Close() // it never fails
	err = <-u.done
	if errors.Is(err, ErrExists) {
		return u.findSame(err)
	}
	if err != nil {
		return Stored{}, err
	}
	return Stored{Seal: u.seal, Stored: size}, nil
}

// findSame is for an object that is there already: a request whose answer was lost is sent
// again, and refused because it was a success. Other content stays an error, which is
// refused.
func (u *upload) findSame(refused error) (Stored, error) {
	object, err := u.repository.store.Stat(u.ctx, u.key)
	if err != nil {
		return Stored{}, errors.Join(refused, err)
	}
	seal, err := u.repository.readSeal(u.ctx, object)
	if err != nil {
		return Stored{}, errors.Join(refused, err)
	}
	if seal != u.seal {
		return Stored{}, refused
	}
	return Stored{Seal: seal, Stored: object.Size}, nil
}

func (u *upload) writeSeal() error {
	u.seal.SHA256 = hexSum(u.sum)
	frame, err := u.seal.encode()
	if err != nil {
		return err
	}
	_, err = u.pipe.Write(frame)
	return err
}

// abort lets the upload fail, and returns cause when it has. An error of the
// store's is the better cause: it came first.
func (u *upload) abort(cause error) error {
	_ = u.pipe.CloseWithError(cause) // it never fails
	// What it has still goes to a pipe that is closed.
	_ = u.content.Close()
	if err := <-u.done; err != nil && !errors.Is(err, cause) {
		return err
	}
	return cause
}

// counter counts what goes into the pipe.
type counter struct {
	*io.PipeWriter
	count int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.PipeWriter.Write(p)
	c.count += int64(n)
	return n, err
}

// create writes an object. ErrExists: there is one.
func (r *Repository) create(ctx context.Context, key string, content io.Reader) (Stored, error) {
	u := r.begin(ctx, key)
	if _, err := io.CopyBuffer(u, content, make([]byte, 256<<10)); err != nil {
		return Stored{}, u.abort(err)
	}
	return u.finish()
}

// download is an object that is being read: its content, decompressed. It must
// be read to its end, where it returns an error instead of io.EOF if it is not
// what the seal says, and closed.
type download struct {
	key          string
	name, system string
	body         io.ReadCloser
	source       *source
	tail         *tail
	decoder      *zstd.Decoder
	sum          hash.Hash
	size         int64
}

// open begins to read an object. ErrNotFound: there is none.
func (r *Repository) open(ctx context.Context, key string) (*download, error) {
	body, err := r.store.Open(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	d := &download{key: key, name: r.layout.name(key), system: r.layout.SystemID, body: body,
		source: &source{from: body}, decoder: decoders.Get().(*zstd.Decoder), sum: sha256.New()}
	d.tail = &tail{from: bufio.NewReaderSize(d.source, 128<<10)}
	if err := d.decoder.Reset(d.tail); err != nil {
		return nil, errors.Join(d.damaged(err), d.Close())
	}
	return d, nil
}

// Read returns ErrDamaged where the object is not what it was.
func (d *download) Read(p []byte) (int, error) {
	n, err := d.decoder.Read(p)
	_, _ = d.sum.Write(p[:n]) // it never fails
	d.size += int64(n)
	if errors.Is(err, io.EOF) {
		return n, d.verify()
	}
	if err != nil {
		return n, d.damaged(err)
	}
	return n, nil
}

func (d *download) verify() error {
	seal, err := parseSeal(d.tail.held)
	if err == nil {
		err = seal.check(d.name, d.system, d.size, d.sum)
	}
	if err != nil {
		return d.damaged(err)
	}
	return io.EOF
}

// damaged blames the object, unless the store failed to deliver it.
func (d *download) damaged(why error) error {
	if d.source.err != nil {
		return fmt.Errorf("read %s: %w", d.key, d.source.err)
	}
	return &DamagedError{Key: d.key, Why: why.Error()}
}

// Close may be called early.
func (d *download) Close() error {
	if d.decoder.Reset(nil) == nil {
		decoders.Put(d.decoder)
	}
	return d.body.Close()
}

// source remembers an error of the store's.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// tail holds the seal back from what it reads.
type tail struct {
	from *bufio.Reader
	held []byte
}

func (t *tail) Read(p []byte) (int, error) {
	ahead, err := t.from.Peek(sealSize + 1)
	if err != nil {
		t.held = bytes.Clone(ahead)
		return 0, err
	}
	return t.from.Read(p[:min(len(p), t.from.Buffered()-sealSize)])
}

// readSeal reads nothing but the seal of an object.
func (r *Repository) readSeal(ctx context.Context, object Object) (Seal, error) {
	if object.Size < sealSize {
		return Seal{}, &DamagedError{Key: object.Key, Why: errNoSeal.Error()}
	}
	body, err := r.store.Open(ctx, object.Key, object.Size-sealSize)
	if err != nil {
		return Seal{}, err
	}
	frame := make([]byte, sealSize)
	_, err = io.ReadFull(body, frame)
	if err := errors.Join(err, body.Close()); err != nil {
		return Seal{}, fmt.Errorf("read %s: %w", object.Key, err)
	}
	seal, err := parseSeal(frame)
	if err != nil {
		return Seal{}, &DamagedError{Key: object.Key, Why: err.Error()}
	}
	return seal, nil
}

// blame says who is to blame for an error of who reads: one that is no error
// of reading is that of the content.
func (d *download) blame(err error) error {
	var path *fs.PathError
	if errors.Is(err, ErrDamaged) || d.source.err != nil || errors.As(err, &path) {
		return err
	}
	return d.damaged(err)
}

// expect says whether the content, read to its end, is what a record says.
func (d *download) expect(part Part) error {
	if sum := hexSum(d.sum); sum != part.SHA256 {
		return d.damaged(fmt.Errorf("its checksum is %s, and the backup's record says %s", sum, part.SHA256))
	}
	return nil
}
