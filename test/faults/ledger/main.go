// Command ledger writes rows to a PostgreSQL all the time and remembers each
// try, with the server that acknowledged it.
//
// Two clients write at once: "kept" keeps its connection while it can, "fresh"
// connects afresh for each row. Both try every 50 ms, and give up a connect or a
// write after one second; what they then wrote is of unknown outcome, and they
// connect anew. A third session is idle.
//
//	GET  /status?since=N   acknowledgements after the instant N, and the rest of Status
//	GET  /entries          every try, an Entry as JSON a line
//	POST /stop             ends the clients, and returns when they have ended
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	name := flag.String("name", "ledger", "begins the ids of rows and the names of clients")
	login := flag.String("login", "/login", "directory of the login: the keys of a cluster's Secret <cluster>-app")
	listen := flag.String("listen", ":8000", "where to answer HTTP")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *name, *login, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, login, listen string) error {
	dsn, err := readLogin(login)
	if err != nil {
		return err
	}
	writing, end := context.WithCancel(ctx)
	defer end()
	book := newBook()
	var writers sync.WaitGroup
	for _, kind := range []kind{kept, fresh} {
		c, err := newClient(dsn, fmt.Sprintf("%s/%s", name, kind), kind, book)
		if err != nil {
			return err
		}
		writers.Go(func() { c.write(writing) })
	}
	sleeper, err := newSleeper(dsn, book)
	if err != nil {
		return err
	}
	writers.Go(func() { sleeper.sleep(writing) })
	server := &http.Server{Addr: listen, Handler: handler(book, func() { end(); writers.Wait() }), ReadHeaderTimeout: time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // the process ends
	}()
	log.Printf("writing as %s", name)
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}
