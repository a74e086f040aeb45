// A program that uses a cluster: it reads the login from the environment, verifies
// the server, and goes on after a failover.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/lib/pq" // the driver "postgres"
)

func main() {
	// PGPASSWORD and the others are keys of the Secret; see docs/connecting.md.
	db, err := sql.Open("postgres", "sslmode=verify-full connect_timeout=5")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	// A connection that outlives its primary is of no use: none gets old.
	db.SetConnMaxLifetime(5 * time.Minute)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		var server string
		if err = db.QueryRowContext(ctx, "SELECT current_user || ' on ' || version()").Scan(&server); err == nil {
			fmt.Println(server)
			return
		}
		// A failover takes seconds. Whether a COMMIT that was cut off has come about,
		// the next connection can tell.
		fmt.Fprintln(os.Stderr, err)
		select {
		case <-ctx.Done():
			log.Fatal(err)
		case <-time.After(time.Second):
		}
	}
}
