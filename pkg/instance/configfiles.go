package instance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/postgres"
)

// Files of the directory config. The server reads serverConf, which includes
// userConf and, since the last setting wins, instanceConf after it.
const (
	serverConf   = "server.conf"
	userConf     = "postgresql.conf"
	instanceConf = "instance.conf"
	hbaConf      = "pg_hba.conf"
	identConf    = "pg_ident.conf"

	// acceptedDir holds the last userConf, hbaConf and user's part of identConf that a
	// running server took, goodDir the last that one started with: some parameters are only
	// tried at a start. stagedDir holds a whole set that is being checked.
	acceptedDir = "accepted"
	goodDir     = "good"
	stagedDir   = "staged"
)

// settings is a configuration as the ConfigMap has it.
type settings struct{ Conf, HBA, Ident string }

func (s settings) hash() string { return instanceapi.ConfigHash(s.Conf, s.HBA, s.Ident) }

func (s settings) isZero() bool { return s == settings{} }

// configDir is the directory config of the volume.
type configDir struct{ path string }

// stage writes s where the server's program can check it, and returns the file
// to check.
func (c configDir) stage(s settings, instance string) (string, error) {
	dir := filepath.Join(c.path, stagedDir)
	if err := writeSet(dir, map[string]string{
		serverConf: includes, userConf: s.Conf, instanceConf: instance, hbaConf: s.HBA,
	}); err != nil {
		return "", err
	}
	return filepath.Join(dir, serverConf), nil
}

const includes = "include '" + userConf + "'\ninclude '" + instanceConf + "'\n"

// install puts files in force for the next start or reload.
func (c configDir) install(s settings, instance, osUser string) error {
	return writeSet(c.path, map[string]string{
		serverConf: includes, userConf: s.Conf, instanceConf: instance, hbaConf: s.HBA, identConf: postgres.RenderIdent(osUser, s.Ident),
	})
}

// installHBA puts another pg_hba.conf in force.
func (c configDir) installHBA(hba string) error {
	return writeSet(c.path, map[string]string{hbaConf: hba})
}

// installInstance puts another instance.conf in force.
func (c configDir) installInstance(instance string) error {
	return writeSet(c.path, map[string]string{instanceConf: instance})
}

// keep remembers s as accepted or good.
func (c configDir) keep(s settings, dir string) error {
	return writeSet(filepath.Join(c.path, dir), map[string]string{userConf: s.Conf, hbaConf: s.HBA, identConf: s.Ident})
}

// kept is what was last remembered there; zero if there is nothing.
func (c configDir) kept(dir string) (settings, error) {
	var s settings
	for name, into := range map[string]*string{userConf: &s.Conf, hbaConf: &s.HBA, identConf: &s.Ident} {
		text, err := os.ReadFile(filepath.Join(c.path, dir, name))
		if errors.Is(err, fs.ErrNotExist) && name == identConf {
			continue // kept by an agent that did not know of user's maps
		}
		if errors.Is(err, fs.ErrNotExist) {
			return settings{}, nil
		}
		if err != nil {
			return settings{}, fmt.Errorf("read %s configuration: %w", dir, err)
		}
		*into = string(text)
	}
	return s, nil
}

func writeSet(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of configuration: %w", err)
	}
	for name, text := range files {
		if err := writeFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// upstream is the server that a replica follows.
type upstream struct {
	Instance, Address string
}

func (u upstream) isZero() bool { return u == upstream{} }

// conninfo is how instance o reaches u for replication: by address, so that
// streaming needs no DNS, while the certificate is verified by name. Its own
// certificate says who it is. The files are read at each connection.
func conninfo(o Options, f serverFiles, u upstream, application, database string) string {
	options := replicationOptions(application, o.tls)
	options["hostaddr"], options["sslrootcert"] = u.Address, f.CA
	return postgres.ConnInfo{Host: cmp.Or(f.Host, u.Instance), Port: o.Port, User: postgres.ReplicationRole, DBName: database, Options: options}.KeyValue()
}

// replicationOptions are libpq's for a connection of the replication role with the
// certificates in those files.
func replicationOptions(application string, file func(name string) string) map[string]string {
	return map[string]string{
		"application_name":    application,
		"connect_timeout":     "5",
		"gssencmode":          "disable",
		"keepalives_idle":     "5",
		"keepalives_interval": "2",
		"keepalives_count":    "3",
		"sslcert":             file(instanceapi.ReplicationCertFile),
		"sslkey":              file(instanceapi.ReplicationKeyFile),
		"sslmode":             "verify-full",
		"sslrootcert":         file(instanceapi.CAFile),
		"tcp_user_timeout":    "10000",
	}
}

// serverConf is the file that the server reads.
func (c configDir) serverConf() string { return filepath.Join(c.path, serverConf) }

// renderInstance writes instance.conf: what differs between instances and
// changes while the server runs. f says by what servers are verified; a zero upstream
// follows nobody; name is how this instance's data is known to others, sync is
// synchronous_standby_names, raised is what a standby needs more of than the
// configuration gives it, and recovery what a server needs that recovers from an
// archive.
func renderInstance(o Options, f serverFiles, u upstream, name, sync string, raised demands, recovery map[string]string) string {
	values := map[string]string{"primary_conninfo": "", "primary_slot_name": "", "restore_command": "", "synchronous_standby_names": sync}
	for parameter, value := range raised {
		values[parameter] = strconv.FormatInt(value, 10)
	}
	if !u.isZero() {
		values["primary_conninfo"] = conninfo(o, f, u, name, "")
		values["primary_slot_name"] = postgres.SlotName(o.Instance)
	}
	maps.Copy(values, recovery)
	return postgres.RenderConf(values)
}
