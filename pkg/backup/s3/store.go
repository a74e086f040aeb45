// Package s3 is a store in a bucket of Amazon S3 or of what speaks like it.
package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pgop/postgres-operator/pkg/backup"
)

// Config says which bucket, and how to reach it.
type Config struct {
	Bucket string
	// Endpoint is the URL of the service; empty: Amazon's.
	Endpoint string
	// Region may be empty where the service finds it by itself.
	Region string
	// Login is asked for each request, so that a changed one is used at once.
	// It must be quick. Nil: the identity of the machine or of the pod's
	// service account.
	Login func() (Login, error)
	// CA are the authorities that the endpoint's certificate may come from; nil:
	// those of the machine, or where it has none Mozilla's.
	CA *x509.CertPool
}

// Login is what a request is signed with. Token is empty but for logins that
// expire.
type Login struct{ KeyID, Secret, Token string }

// Store is a bucket.
type Store struct {
	core   minio.Core
	config Config
}

var _ backup.Store = (*Store)(nil)

// tries is how often a request is sent before its error is believed; what is
// to last longer is the caller's to repeat.
const tries = 3

// New makes a store of a bucket. It does not reach for it yet.
func New(config Config) (*Store, error) {
	endpoint := config.Endpoint
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fmt.Errorf("S3 endpoint %q is not a URL such as https://s3.example.com", endpoint)
	}
	options := &minio.Options{Secure: at.Scheme == "https", Region: config.Region, MaxRetries: tries, Creds: credentials.NewIAM("")}
	if config.Login != nil {
		options.Creds = credentials.New(provider{config.Login})
	}
	if config.Endpoint != "" {
		// Services other than Amazon's seldom have a name in DNS for each bucket.
		options.BucketLookup = minio.BucketLookupPath
	}
	if options.Secure {
		if options.Transport, err = transport(config.CA); err != nil {
			return nil, fmt.Errorf("connect to S3 endpoint %s: %w", endpoint, err)
		}
	}
	client, err := minio.New(at.Host, options)
	if err != nil {
		return nil, fmt.Errorf("connect to S3 endpoint %s: %w", endpoint, err)
	}
	return &Store{core: minio.Core{Client: client}, config: config}, nil
}

// transport trusts those authorities; nil: the machine's, or Mozilla's.
func transport(ca *x509.CertPool) (*http.Transport, error) {
	const secure = true
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	if ca == nil {
		if ca, err = authorities(); err != nil {
			return nil, err
		}
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = ca
	return t, nil
}

// String names the bucket and where it is.
func (s *Store) String() string {
	if s.config.Endpoint == "" {
		return "S3 bucket " + s.config.Bucket
	}
	return fmt.Sprintf("S3 bucket %s at %s", s.config.Bucket, s.config.Endpoint)
}

// Open implements backup.Store.
func (s *Store) Open(ctx context.Context, key string, from int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	if from > 0 {
		if err := options.SetRange(from, 0); err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
	}
	body, _, _, err := s.core.GetObject(ctx, s.config.Bucket, key, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, classify(err))
	}
	return body, nil
}

// Stat implements backup.Store.
func (s *Store) Stat(ctx context.Context, key string) (backup.Object, error) {
	info, err := s.core.StatObject(ctx, s.config.Bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return backup.Object{}, fmt.Errorf("look at %s: %w", key, classify(err))
	}
	return backup.Object{Key: key, Size: info.Size, Modified: info.LastModified}, nil
}

// List implements backup.Store.
func (s *Store) List(ctx context.Context, prefix string, each func(backup.Object) error) error {
	for info := range s.core.ListObjectsIter(ctx, s.config.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if info.Err != nil {
			return fmt.Errorf("list %s: %w", prefix, classify(info.Err))
		}
		if err := each(backup.Object{Key: info.Key, Size: info.Size, Modified: info.LastModified}); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements backup.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.core.RemoveObject(ctx, s.config.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
		if err = classify(err); errors.Is(err, backup.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Sweep implements backup.Store. What it ends are uploads in parts: services keep, and
// charge for, the parts of those that were neither completed nor aborted.
func (s *Store) Sweep(ctx context.Context, prefix string, before time.Time) error {
	const atOnce = 1000
	keyMarker, uploadMarker := "", ""
	for {
		found, err := s.core.ListMultipartUploads(ctx, s.config.Bucket, prefix, keyMarker, uploadMarker, "", atOnce)
		if err != nil {
			return fmt.Errorf("sweep %s: %w", prefix, classify(err))
		}
		for _, upload := range found.Uploads {
			if !upload.Initiated.Before(before) || !strings.HasPrefix(upload.Key, prefix) {
				continue
			}
			if err := s.abort(ctx, upload.Key, upload.UploadID); err != nil && !isGone(err) {
				return fmt.Errorf("sweep %s: %w", upload.Key, err)
			}
		}
		if !found.IsTruncated || found.NextKeyMarker == "" {
			return nil
		}
		keyMarker, uploadMarker = found.NextKeyMarker, found.NextUploadIDMarker
	}
}

// isGone says whether an upload has ended meanwhile.
func isGone(err error) bool {
	var answered *Error
	return errors.As(err, &answered) && answered.Answer.Code == minio.NoSuchUpload
}

// Error is what the service answered: its own words, and what they mean here.
type Error struct {
	Answer minio.ErrorResponse
	// means is backup.ErrNotFound, backup.ErrExists or nil.
	means error
}

// Error is the service's code and message.
func (e *Error) Error() string {
	if e.Answer.Message == "" {
		return e.Answer.Code
	}
	return e.Answer.Code + ": " + e.Answer.Message
}

// Unwrap returns what the answer means.
func (e *Error) Unwrap() error { return e.means }

func classify(err error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return err
	}
	var means error
	switch {
	case answer.Code == minio.NoSuchKey:
		means = backup.ErrNotFound
	case answer.StatusCode == http.StatusPreconditionFailed,
		answer.Code == "ConditionalRequestConflict": // two wrote it at once
		means = backup.ErrExists
	}
	return &Error{Answer: answer, means: means}
}

// provider asks for the login each time.
type provider struct{ login func() (Login, error) }

func (p provider) Retrieve() (credentials.Value, error) {
	login, err := p.login()
	if err != nil {
		return credentials.Value{}, err
	}
	return credentials.Value{AccessKeyID: login.KeyID, SecretAccessKey: login.Secret, SessionToken: login.Token,
		SignerType: credentials.SignatureV4}, nil
}

func (p provider) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return p.Retrieve()
}

func (p provider) IsExpired() bool { return true }
