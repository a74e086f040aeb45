package images

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var (
	//go:embed recipe/users.sh
	usersHook []byte
	//go:embed recipe/finish.sh
	finishHook []byte
)

// releases names the Debian release that has each major version of PostgreSQL.
var releases = map[int]string{15: "bookworm", 17: "trixie"}

// PostgresName is the name of the image that EnsurePostgres makes, the Docker
// Official one's, so that manifests run unchanged here and elsewhere.
func PostgresName(major int) string { return fmt.Sprintf("docker.io/library/postgres:%d", major) }

// EnsurePostgres returns the archive of an image that honours the contract of
// the Docker Official image postgres:<major>, except for its entrypoint script
// and for JIT compilation, whose compiler would be half of the image: postgres
// finds no JIT provider and goes on without.
//
// The archive is kept in cacheDir for as long as the recipe stays the same. The
// calls of several processes take turns.
func EnsurePostgres(ctx context.Context, cacheDir string, major int, progress func(format string, args ...any)) (tarPath string, err error) {
	recipe, err := recipeFor(major)
	if err != nil {
		return "", err
	}
	return recipe.ensure(ctx, cacheDir, fmt.Sprintf("postgres-%d", major), progress)
}

// PostgresEarlierName is the name of the image that EnsurePostgresEarlier makes.
func PostgresEarlierName(major int) string { return PostgresName(major) + "-earlier" }

// EnsurePostgresEarlier returns the archive of an image as EnsurePostgres's with the
// minor version that the Debian release has without its security updates: an earlier
// one, but for the weeks after a point release, in which both are the same.
func EnsurePostgresEarlier(ctx context.Context, cacheDir string, major int, progress func(format string, args ...any)) (tarPath string, err error) {
	recipe, err := recipeFor(major)
	if err != nil {
		return "", err
	}
	recipe.name = PostgresEarlierName(major)
	recipe.options = append(recipe.options, withoutSecurityUpdates)
	return recipe.ensure(ctx, cacheDir, fmt.Sprintf("postgres-%d-earlier", major), progress)
}

// withoutSecurityUpdates makes mmdebstrap's apt forget Debian's security archive.
const withoutSecurityUpdates = `--setup-hook=sed -i '/-security /d' "$1/etc/apt/sources.list"`

func recipeFor(major int) (recipe, error) {
	release, known := releases[major]
	if !known {
		return recipe{}, fmt.Errorf("make image of PostgreSQL %d: no Debian release is known to have it", major)
	}
	return recipe{
		name:    PostgresName(major),
		release: release,
		options: debianOptions(major),
		hooks:   []hook{{"--essential-hook", usersHook}, {"--customize-hook", finishHook}},
		env:     "PG_MAJOR=" + strconv.Itoa(major),
		config:  postgresConfig(major),
	}, nil
}

// debianOptions ask mmdebstrap for a server, without the compiler for JIT.
func debianOptions(major int) []string {
	options := slimDebian(fmt.Sprintf("postgresql-%d,locales", major),
		"/usr/lib/*/libLLVM*", "/usr/lib/*/libz3*", "/usr/lib/llvm*",
		"/usr/lib/postgresql/*/lib/llvmjit*", "/usr/lib/postgresql/*/lib/bitcode/*")
	return append(options,
		"--skip=cleanup/run", // where finish.sh makes the socket directory
		"--dpkgopt=path-include=/usr/share/locale/locale.alias")
}

func postgresConfig(major int) v1.Config {
	return v1.Config{
		Env: []string{
			fmt.Sprintf("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/%d/bin", major),
			"LANG=en_US.utf8",
			fmt.Sprintf("PG_MAJOR=%d", major),
			"PGDATA=/var/lib/postgresql/data",
		},
		Cmd:          []string{"postgres"},
		Volumes:      map[string]struct{}{"/var/lib/postgresql/data": {}},
		ExposedPorts: map[string]struct{}{"5432/tcp": {}},
		StopSignal:   "SIGINT",
	}
}
