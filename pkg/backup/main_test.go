package backup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/test/s3test"
)

// TestMain builds the S3 server where the tests' user can reach it.
func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, func(dir string) ([]string, error) {
		program, err := s3test.Build()
		if err != nil {
			return nil, err
		}
		reachable := filepath.Join(dir, "versitygw")
		return []string{s3test.ProgramVariable + "=" + reachable}, pgtest.Copy(program, reachable)
	}))
}
