package backup

import (
	"archive/tar"
	"context"
	"errors"
	"io"
)

// parts cuts a base backup into objects of about the same size, each a tar of
// its own, so that they can be restored in parallel. While the store finishes
// one, the next begins.
type parts struct {
	repository *Repository
	id         string
	// size is where a part ends, in bytes. A file is never cut.
	size int64

	begun     int
	current   *upload
	tar       *tar.Writer
	finishing chan finished
	done      []Part
	buffer    []byte
}

type finished struct {
	part Part
	err  error
}

func newParts(r *Repository, id string, size int64) *parts {
	return &parts{repository: r, id: id, size: size, buffer: make([]byte, 256<<10)}
}

// add adds a file.
func (p *parts) add(ctx context.Context, header *tar.Header, content io.Reader) error {
	if p.current != nil && p.current.seal.Size >= p.size {
		if err := p.cut(); err != nil {
			return err
		}
	}
	if p.current == nil {
		p.begun++
		p.current = p.repository.begin(ctx, p.repository.layout.Part(p.id, p.begun))
		p.tar = tar.NewWriter(p.current)
	}
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.CopyBuffer(p.tar, content, p.buffer)
	return err
}

// cut ends the current part, and lets the store finish it.
func (p *parts) cut() error {
	if err := p.await(); err != nil {
		return err
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	current, finishing := p.current, make(chan finished, 1)
	p.current, p.finishing = nil, finishing
	go func() {
		stored, err := current.finish()
		finishing <- finished{Part{Size: stored.Size, Stored: stored.Stored, SHA256: stored.SHA256}, err}
	}()
	return nil
}

// await waits for the part before.
func (p *parts) await() error {
	if p.finishing == nil {
		return nil
	}
	f := <-p.finishing
	p.finishing = nil
	if f.err == nil {
		p.done = append(p.done, f.part)
	}
	return f.err
}

// finish returns when all parts are in the store.
func (p *parts) finish() ([]Part, error) {
	if p.current != nil {
		if err := p.cut(); err != nil {
			return nil, err
		}
	}
	if err := p.await(); err != nil {
		return nil, err
	}
	return p.done, nil
}

// abort ends what is on its way, and returns the cause: the store's own error,
// if there is one.
func (p *parts) abort(cause error) error {
	if p.current != nil {
		cause = p.current.abort(cause)
		p.current = nil
	}
	if err := p.await(); err != nil && !errors.Is(cause, err) {
		return err
	}
	return cause
}
