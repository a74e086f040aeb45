// Command image makes the container images of the local cluster:
//
//	image operator --binary FILE --name IMAGE --out ARCHIVE
//	image binary   --binary FILE --name IMAGE --path PATH --out ARCHIVE
//	image postgres --major MAJOR [--uid UID | --earlier] --cache DIR
//	image jdbc     --cache DIR
//
// The last two print the path of the archive that they made or found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pgop/postgres-operator/test/localcluster/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: image operator|binary|postgres|jdbc [flags]")
	}
	switch args[0] {
	case "operator":
		return buildOperator(args[1:])
	case "binary":
		return buildBinary(args[1:])
	case "postgres":
		return ensurePostgres(ctx, args[1:])
	case "jdbc":
		return ensureJDBC(ctx, args[1:])
	}
	return fmt.Errorf("unknown image %q: want operator, binary, postgres or jdbc", args[0])
}

func buildOperator(args []string) error {
	flags := flag.NewFlagSet("operator", flag.ExitOnError)
	binary := flags.String("binary", "", "the operator's static program")
	name := flags.String("name", "docker.io/pgop/postgres-operator:dev", "name of the image")
	out := flags.String("out", "", "archive to write")
	flags.Parse(args)
	if err := requireFlags(flags, "binary", "name", "out"); err != nil {
		return err
	}
	return images.BuildOperator(*binary, *name, *out)
}

func buildBinary(args []string) error {
	flags := flag.NewFlagSet("binary", flag.ExitOnError)
	binary := flags.String("binary", "", "a static program")
	name := flags.String("name", "", "name of the image")
	path := flags.String("path", "", "the program's place in the image")
	out := flags.String("out", "", "archive to write")
	flags.Parse(args)
	if err := requireFlags(flags, "binary", "name", "path", "out"); err != nil {
		return err
	}
	return images.BuildBinary(*name, *binary, *path, *out)
}

func ensurePostgres(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("postgres", flag.ExitOnError)
	major := flags.Int("major", 17, "major version of PostgreSQL")
	uid := flags.Int("uid", 0, "user and group id of postgres, if not the official image's")
	earlier := flags.Bool("earlier", false, "with the minor version that Debian has without its security updates")
	cache := flags.String("cache", "", "directory that keeps the archive")
	flags.Parse(args)
	if err := requireFlags(flags, "cache"); err != nil {
		return err
	}
	if *uid != 0 && *earlier {
		return errors.New("postgres: give --uid or --earlier, not both")
	}
	tarPath, err := ensureVariant(ctx, *cache, *major, *uid, *earlier)
	if err != nil {
		return err
	}
	fmt.Println(tarPath)
	return nil
}

func ensureJDBC(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("jdbc", flag.ExitOnError)
	cache := flags.String("cache", "", "directory that keeps the archive")
	flags.Parse(args)
	if err := requireFlags(flags, "cache"); err != nil {
		return err
	}
	tarPath, err := images.EnsureJDBC(ctx, *cache, report)
	if err != nil {
		return err
	}
	fmt.Println(tarPath)
	return nil
}

func ensureVariant(ctx context.Context, cache string, major, uid int, earlier bool) (string, error) {
	switch {
	case earlier:
		return images.EnsurePostgresEarlier(ctx, cache, major, report)
	case uid != 0:
		return images.EnsurePostgresUID(ctx, cache, major, uid, report)
	}
	return images.EnsurePostgres(ctx, cache, major, report)
}

func report(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

func requireFlags(flags *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("%s: --%s is missing", flags.Name(), name)
		}
	}
	return nil
}
