// Package s3test runs a real S3 server for tests: versitygw, which the module
// test/versitygw names, on a directory of the test.
package s3test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/pgop/postgres-operator/pkg/backup/s3"
)

// ProgramVariable names the server's program to tests that can't build it.
const ProgramVariable = "PGOP_TEST_VERSITYGW"

// Build builds the server, once for each version, and returns its path.
func Build() (string, error) {
	if path := os.Getenv(ProgramVariable); path != "" {
		return path, nil
	}
	_, here, _, _ := runtime.Caller(0)
	module := filepath.Join(filepath.Dir(here), "..", "versitygw")
	const name = "github.com/versity/versitygw"
	version, err := exec.Command("go", "-C", module, "list", "-m", "-f", "{{.Version}}", name).Output()
	if err != nil {
		return "", fmt.Errorf("find the version of the S3 server: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "pgop-tests", "versitygw-"+strings.TrimSpace(string(version)))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Tests of several packages may build it at once.
	building := fmt.Sprintf("%s.%d", path, os.Getpid())
	output, err := exec.Command("go", "-C", module, "build", "-o", building, name+"/cmd/versitygw").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the S3 server: %w\n%s", err, output)
	}
	return path, os.Rename(building, path)
}

// Server is a server with one bucket.
type Server struct {
	Endpoint, Bucket string
	Login            s3.Login

	t       testing.TB
	program string
	dir     string
	address string
	running *exec.Cmd
}

// Start starts a server that lives as long as the test, and that this machine
// reaches.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is Start at an address of this machine that others reach, too.
func StartAt(t testing.TB, ip string) *Server {
	t.Helper()
	program, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Bucket: "backups", Login: s3.Login{KeyID: "test", Secret: "test-secret"}, t: t, program: program, dir: t.TempDir(), address: freeAddress(t, ip)}
	s.Endpoint = "http://" + s.address
	for _, dir := range []string{s.objects(), s.attributes()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.Run()
	t.Cleanup(s.Stop)
	if err := s.client().MakeBucket(context.Background(), s.Bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Objects is the directory that holds the bucket's objects as files.
func (s *Server) Objects() string { return filepath.Join(s.objects(), s.Bucket) }

func (s *Server) objects() string    { return filepath.Join(s.dir, "objects") }
func (s *Server) attributes() string { return filepath.Join(s.dir, "attributes") }

// Config is how to reach the bucket.
func (s *Server) Config() s3.Config {
	return s3.Config{Bucket: s.Bucket, Endpoint: s.Endpoint, Region: "us-east-1", Login: func() (s3.Login, error) { return s.Login, nil }}
}

// Store is the bucket.
func (s *Server) Store() *s3.Store {
	store, err := s3.New(s.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	return store
}

// Stop takes the service away; Run brings it back.
func (s *Server) Stop() {
	if s.running == nil {
		return
	}
	_ = s.running.Process.Kill() // Wait says how it ended
	_ = s.running.Wait()
	s.running = nil
}

// Run starts the service again.
func (s *Server) Run() {
	s.t.Helper()
	cmd := exec.Command(s.program, "--port", s.address, "--access", s.Login.KeyID, "--secret", s.Login.Secret, "--quiet", "--keep-alive",
		"posix", "--sidecar", s.attributes(), s.objects())
	// A test that is killed takes it with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The signal comes when the thread that started it ends.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		if cmd.Process != nil {
			select {} // the thread lives as long as this process
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.running = cmd
	s.awaitAnswer()
}

func (s *Server) awaitAnswer() {
	s.t.Helper()
	const longest = 20 * time.Second
	for deadline := time.Now().Add(longest); ; time.Sleep(10 * time.Millisecond) {
		_, err := s.client().BucketExists(context.Background(), s.Bucket)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not answer: %v", err)
		}
	}
}

func (s *Server) client() *minio.Client {
	client, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(s.Login.KeyID, s.Login.Secret, ""),
		Region: "us-east-1", BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

func freeAddress(t testing.TB, ip string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}
