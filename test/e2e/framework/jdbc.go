//go:build e2e

package framework

import "context"

const (
	jdbcPod   = "jdbc"
	jdbcImage = "docker.io/pgop/jdbc:dev"
)

// StartJDBC makes, loads and starts an image with PostgreSQL's JDBC driver.
func (f *Framework) StartJDBC() {
	f.T.Helper()
	f.loadImage("jdbc")
	f.startTool(jdbcPod, jdbcImage)
}

// JDBC runs SQL, as one line, over a connection that the driver makes of a URI, and
// returns its rows as CSV below a line with the columns' names. The file /tmp/ca.crt
// has the authority, for URIs that name it.
func (f *Framework) JDBC(ctx context.Context, uri, authority, sql string) (string, error) {
	if err := f.awaitTool(ctx, jdbcPod); err != nil {
		return "", err
	}
	// What sqlline is asked to run comes over standard input, and its user and password
	// are of the URI: those given apart from it are what it would ask for.
	const script = `printf %s "$2" >/tmp/ca.crt
		exec timeout 60 java -Duser.home=/tmp -cp /usr/share/java/postgresql.jar:/usr/share/java/sqlline.jar:/usr/share/java/jline.jar \
			sqlline.SqlLine -d org.postgresql.Driver -n "" -p "" --silent=true --outputformat=csv -u "$1" 2>&1`
	return f.execIn(ctx, jdbcPod, jdbcPod, sql+";\n!quit\n", script, uri, authority)
}
