package backup

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Layout says where the objects of one database system lie in a store; see
// docs/backup-format.md.
type Layout struct {
	// Prefix is the part of the store that belongs to the cluster; empty: all.
	Prefix string
	// SystemID is the server's identifier of its database system.
	SystemID string
	Major    int
}

const (
	walFolder    = "wal"
	baseFolder   = "base"
	stored       = ".zst"
	ownerName    = "owner.json"
	recordName   = "backup.json"
	manifestName = "backup_manifest"
)

// Owner is the key of the marker that says whose the prefix is.
func (l Layout) Owner() string { return path.Join(l.Prefix, ownerName) }

func (l Layout) root() string { return path.Join(l.Prefix, l.SystemID, strconv.Itoa(l.Major)) }

// WAL is the key of an archived file.
func (l Layout) WAL(name WALName) string { return l.TimelineFolder(name.Timeline) + name.Text + stored }

// TimelineFolder is what the keys of a timeline's archived files begin with.
func (l Layout) TimelineFolder(timeline uint32) string {
	return fmt.Sprintf("%s%08X/", l.WALFolder(), timeline)
}

// WALFolder is what the keys of all archived files begin with.
func (l Layout) WALFolder() string { return path.Join(l.root(), walFolder) + "/" }

// ParseWAL reads the name of an archived file from its key; false: it is the
// key of something else.
func (l Layout) ParseWAL(key string) (WALName, bool) {
	name, err := ParseWALName(strings.TrimSuffix(path.Base(key), stored))
	return name, err == nil && l.WAL(name) == key
}

// BaseFolder is what the keys of all base backups begin with.
func (l Layout) BaseFolder() string { return path.Join(l.root(), baseFolder) + "/" }

// BackupFolder is what the keys of a base backup begin with.
func (l Layout) BackupFolder(id string) string { return l.BaseFolder() + id + "/" }

// Record is the key of a base backup's record, which is written last.
func (l Layout) Record(id string) string { return l.BackupFolder(id) + recordName }

// Manifest is the key of the manifest that the server has made.
func (l Layout) Manifest(id string) string { return l.BackupFolder(id) + manifestName + stored }

// Part is the key of a part of the data, counted from 1.
func (l Layout) Part(id string, number int) string {
	return l.BackupFolder(id) + partName(number) + stored
}

func partName(number int) string { return fmt.Sprintf("part-%05d.tar", number) }

// ParseBase reads which backup a key belongs to, and the object's name in it;
// false: it is the key of something else.
func (l Layout) ParseBase(key string) (id, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.BaseFolder())
	if !ok {
		return "", "", false
	}
	id, name, ok = strings.Cut(rest, "/")
	return id, name, ok && id != "" && name != ""
}
