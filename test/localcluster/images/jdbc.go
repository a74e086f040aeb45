package images

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// JDBCName is the name of the image that EnsureJDBC makes.
const JDBCName = "docker.io/pgop/jdbc:dev"

// EnsureJDBC returns the archive of an image with a Java runtime, PostgreSQL's JDBC
// driver, and sqlline, which runs SQL over it: their jars are in /usr/share/java.
func EnsureJDBC(ctx context.Context, cacheDir string, progress Progress) (tarPath string, err error) {
	return jdbcRecipe().ensure(ctx, cacheDir, "jdbc", progress)
}

func jdbcRecipe() recipe {
	return recipe{
		name:    JDBCName,
		release: "bookworm",
		options: append(slimDebian("openjdk-17-jre-headless,libpostgresql-jdbc-java,sqlline"),
			// The runtime links its manual pages, which are not unpacked, there.
			`--essential-hook=mkdir -p "$1/usr/share/man/man1"`),
		config: v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}},
	}
}
