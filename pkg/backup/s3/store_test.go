package s3_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pgop/postgres-operator/pkg/backup"
	"github.com/pgop/postgres-operator/pkg/backup/s3"
	"github.com/pgop/postgres-operator/pkg/backup/storetest"
	"github.com/pgop/postgres-operator/test/s3test"
)

func TestStore(t *testing.T) { storetest.Run(t, s3test.Start(t).Store()) }

func TestD13AChangedLoginIsUsedAtOnce(t *testing.T) {
	server := s3test.Start(t)
	config, login := server.Config(), s3.Login{KeyID: server.Login.KeyID, Secret: "wrong"}
	config.Login = func() (s3.Login, error) { return login, nil }
	store, err := s3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Create(context.Background(), "a", strings.NewReader("x"))
	var refused *s3.Error
	if !errors.As(err, &refused) || refused.Answer.Code != minio.SignatureDoesNotMatch || !strings.Contains(err.Error(), refused.Answer.Message) {
		t.Errorf("with a wrong secret: %v", err)
	}
	login = server.Login
	if err := store.Create(context.Background(), "a", strings.NewReader("x")); err != nil {
		t.Error(err)
	}
}

func TestD14ABucketThatIsMissingIsNoEmptyStore(t *testing.T) {
	config := s3test.Start(t).Config()
	config.Bucket = "no-such-bucket"
	store, err := s3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, openErr := store.Open(ctx, "a", 0)
	for what, err := range map[string]error{
		"open":   openErr,
		"list":   store.List(ctx, "", func(backup.Object) error { return nil }),
		"create": store.Create(ctx, "a", strings.NewReader("x")),
	} {
		if errors.Is(err, backup.ErrNotFound) || err == nil || !strings.Contains(err.Error(), "NoSuchBucket: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestD14AServiceThatIsAwayIsNamed(t *testing.T) {
	server := s3test.Start(t)
	server.Stop()
	_, err := server.Store().Open(context.Background(), "a", 0)
	if errors.Is(err, backup.ErrNotFound) || err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
}

func TestEndpointsAreURLs(t *testing.T) {
	for _, endpoint := range []string{"minio:9000", "ftp://a", "https://"} {
		if _, err := s3.New(s3.Config{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "is not a URL") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// D-01: an upload in parts whose writer was killed is ended once it is old.
func TestD01SweepEndsUploadsThatWereBrokenOff(t *testing.T) {
	server, ctx := s3test.Start(t), context.Background()
	endpoint := strings.TrimPrefix(server.Endpoint, "http://")
	client, err := minio.NewCore(endpoint, &minio.Options{Creds: credentials.NewStaticV4(server.Login.KeyID, server.Login.Secret, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"shop/base/b/part", "shopping/part"} {
		upload, err := client.NewMultipartUpload(ctx, server.Bucket, key, minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.PutObjectPart(ctx, server.Bucket, key, upload, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() string {
		found, err := client.ListMultipartUploads(ctx, server.Bucket, "", "", "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, upload := range found.Uploads {
			keys = append(keys, upload.Key)
		}
		return strings.Join(keys, " ")
	}
	for _, c := range []struct {
		before time.Time
		want   string
	}{{time.Now().Add(-time.Hour), "shop/base/b/part shopping/part"}, {time.Now().Add(time.Hour), "shopping/part"}} {
		if err := server.Store().Sweep(ctx, "shop/", c.before); err != nil {
			t.Fatal(err)
		}
		if got := left(); got != c.want {
			t.Errorf("left %q, want %q", got, c.want)
		}
	}
}
