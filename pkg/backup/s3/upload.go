package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/pgop/postgres-operator/pkg/backup"
)

// partSize is how much is sent at once, and kept in memory until the service
// has it. A WAL segment of the usual size that can't be compressed still fits
// into one part, which takes one request instead of three. A service takes
// 10,000 parts, so an object may have 158 GiB.
const partSize = 16<<20 + 256<<10

// Create implements backup.Store. Each part is signed with its checksum, which
// the service verifies.
func (s *Store) Create(ctx context.Context, key string, content io.Reader) error {
	var part buffer
	ended, err := part.fill(content, partSize)
	switch {
	case err != nil:
	case ended:
		err = s.createWhole(ctx, key, &part)
	default:
		err = s.createInParts(ctx, key, &part, content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", key, classify(err))
	}
	part.free()
	return nil
}

// unlessThere lets the service refuse what would overwrite an object. The
// client need not compute checksums, since it is given one; else it would do so
// where the connection isn't encrypted, chunk by chunk.
func unlessThere() minio.PutObjectOptions {
	options := minio.PutObjectOptions{DisableContentSha256: true}
	options.SetMatchETagExcept("*")
	return options
}

func (s *Store) createWhole(ctx context.Context, key string, part *buffer) error {
	_, err := s.core.PutObject(ctx, s.config.Bucket, key, part.reader(), part.size, "", part.checksum(), unlessThere())
	return err
}

// createInParts sends what is in part, and then the rest.
func (s *Store) createInParts(ctx context.Context, key string, part *buffer, rest io.Reader) error {
	// Services that look at the condition only at the end would have it all sent
	// for nothing.
	if _, err := s.Stat(ctx, key); err == nil {
		return backup.ErrExists
	}
	upload, err := s.core.NewMultipartUpload(ctx, s.config.Bucket, key, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	parts, err := s.sendParts(ctx, key, upload, part, rest)
	if err == nil {
		_, err = s.core.CompleteMultipartUpload(ctx, s.config.Bucket, key, upload, parts, unlessThere())
		if isGone(classify(err)) {
			// It was completed before, by a request whose answer was lost; or aborted.
			if _, statErr := s.Stat(ctx, key); statErr == nil {
				return backup.ErrExists
			}
		}
	}
	if err != nil {
		return errors.Join(classify(err), s.abort(ctx, key, upload))
	}
	return nil
}

// sendParts sends what is in first, and then the rest: while the service takes one part,
// the next is read. After an error that may go on for as long as rest lasts.
func (s *Store) sendParts(ctx context.Context, key, upload string, first *buffer, rest io.Reader) ([]minio.CompletePart, error) {
	second := &buffer{}
	var sent []minio.CompletePart
	for part, next, ended := first, second, false; part.size > 0; part, next = next, part {
		filled := make(chan error, 1)
		isLast := ended
		if !isLast {
			go func() {
				var err error
				ended, err = next.fill(rest, partSize)
				filled <- err
			}()
		}
		answer, err := s.core.PutObjectPart(ctx, s.config.Bucket, key, upload, len(sent)+1,
			part.reader(), part.size, minio.PutObjectPartOptions{Sha256Hex: part.checksum(), DisableContentSha256: true})
		if err != nil {
			return nil, err
		}
		sent = append(sent, minio.CompletePart{PartNumber: answer.PartNumber, ETag: answer.ETag})
		if isLast {
			break
		}
		if err := <-filled; err != nil {
			return nil, err
		}
	}
	second.free()
	return sent, nil
}

// abort frees what an upload has left, also when it ended with its context.
func (s *Store) abort(ctx context.Context, key, upload string) error {
	const longest = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	if err := s.core.AbortMultipartUpload(ctx, s.config.Bucket, key, upload); err != nil {
		return fmt.Errorf("abort the upload: %w", classify(err))
	}
	return nil
}
