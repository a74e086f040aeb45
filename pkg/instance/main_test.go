package instance

import (
	"os"
	"path/filepath"
	"testing"

	// The test program also is what servers call to archive and to restore WAL, as
	// the operator's own binary is in a pod.
	_ "github.com/pgop/postgres-operator/cmd/postgres-operator/early"
	"github.com/pgop/postgres-operator/pkg/internal/pgtest"
	"github.com/pgop/postgres-operator/test/s3test"
)

// TestMain runs the tests as an ordinary user, since PostgreSQL's programs refuse
// to run as root.
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
