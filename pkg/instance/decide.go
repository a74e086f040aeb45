package instance

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// situation is all that decide decides by.
type situation struct {
	Me     string
	Config knownConfig
	Lease  knownLease
	// APIAway is true once the API has given no answer for a while.
	APIAway bool
	// Target is what the election core wants the server to be.
	Target election.Target

	Data     dataKind
	WAL      walKind
	Identity identity
	SystemID string
	// DataPath and OtherData are for messages; OtherData is a data directory
	// elsewhere on the volume, or WAL of other data on the WAL volume.
	DataPath, OtherData string
	Memory              reignMemory
	// GaveUp is why the restore that is asked for has failed for good; empty: it
	// has not.
	GaveUp string
}

// move is what an instance does next.
type move string

const (
	moveWait move = "wait"
	// moveRefuse means that something is wrong that people have to see.
	moveRefuse move = "refuse"
	moveInitdb move = "initdb"
	// moveRestore means to make the first database of a backup, and moveCopy of
	// another cluster's.
	moveRestore move = "restore"
	moveCopy    move = "copy"
	moveClone   move = "clone"
	// moveReign means to serve as the primary.
	moveReign move = "reign"
	// moveFollow means to serve as a replica of Upstream, or of nobody for now.
	moveFollow move = "follow"
	// moveReclone means to throw the data away, as a user wishes.
	moveReclone move = "reclone"
)

// decision is a move, why for people, and the server that it concerns.
type decision struct {
	Move     move
	Why      string
	Upstream upstream
}

func wait(format string, args ...any) decision {
	return decision{Move: moveWait, Why: fmt.Sprintf(format, args...)}
}

func refuse(format string, args ...any) decision {
	return decision{Move: moveRefuse, Why: fmt.Sprintf(format, args...)}
}

// decide says what an instance should do, from what it has and knows. It is
// level-based: the same situation always gives the same move, and a move that
// is already done is asked for again.
func decide(s situation) decision {
	switch {
	case s.Target.Role == election.Leading:
		return decision{Move: moveReign}
	case !s.Lease.Known || !s.Config.Known:
		return decideBlind(s)
	case s.Data == dataComplete:
		return decideWithData(s)
	case s.Data == dataWithoutWAL:
		return decideWithoutWAL(s)
	}
	return decideWithoutData(s)
}

// decideBlind decides before the API has shown everything. A standby can't do
// harm, so one that has data follows the last reign that it knows of.
func decideBlind(s situation) decision {
	last := election.ParseHolder(s.Memory.Holder)
	if s.APIAway && s.Data == dataComplete && !s.Memory.Record.IsEmpty() && last.Instance != s.Me {
		return follow(last.Instance, s.Memory.Record)
	}
	if !s.Config.Known {
		return wait("waiting for the cluster's ConfigMap")
	}
	return wait("waiting for the cluster's Lease")
}

func follow(holder string, r election.Record) decision {
	return decision{Move: moveFollow, Upstream: upstream{Instance: holder, Address: r.HolderAddress}}
}

func decideWithData(s situation) decision {
	record, holder := s.Lease.Record, s.Lease.Holder.Instance
	if s.isOfAnotherSystem() {
		return s.refuseAnotherSystem()
	}
	switch {
	case record.IsEmpty():
		if s.founds() {
			return wait("claiming the Lease")
		}
		return wait("waiting for a primary: %s", s.Target.Why)
	case record.SystemID != "" && record.SystemID != s.SystemID:
		return refuse("the Lease speaks of another database (system %s) than the volume holds (%s)", record.SystemID, s.SystemID)
	case s.isToClone() && record.HolderDataID != s.Identity.ID:
		return decision{Move: moveReclone, Why: "a user asks for it"}
	case holder == s.Me && record.HolderDataID != s.Identity.ID:
		return s.decideLost(record, "the Lease speaks of other data than this volume holds")
	case s.Target.Role == election.Following:
		up := upstream{}
		if s.Target.Upstream != "" {
			up = upstream{Instance: holder, Address: record.HolderAddress}
		}
		return decision{Move: moveFollow, Upstream: up, Why: s.Target.Why}
	}
	return wait("%s", s.Target.Why)
}

func (s situation) isOfAnotherSystem() bool {
	want := s.wantedSystem()
	return want != "" && want != s.SystemID
}

func (s situation) refuseAnotherSystem() decision {
	return refuse("the volume holds another database (system %s in %s) than this cluster's (%s); it is left alone: "+
		"give the instance another volume, or move that directory away", s.SystemID, s.DataPath, s.wantedSystem())
}

// isToClone says whether a user wants the present data to be thrown away. What is
// to be cloned on new volumes is no business of this pod's, which is to go.
func (s situation) isToClone() bool {
	r := s.Config.Config.Reclone
	return r != nil && !r.NewVolumes && r.Instance == s.Me && r.DataID == s.Identity.ID
}

// decideWithoutWAL is for data whose WAL was on a WAL volume that is not there.
// Nobody starts a server on it. A replica whose WAL volume is a new one is cloned
// again; where the WAL volume holds something else, people have to look.
func decideWithoutWAL(s situation) decision {
	record, holder := s.Lease.Record, s.Lease.Holder.Instance
	what := map[walKind]string{
		walMissing:   "its WAL volume is empty, and the WAL of its data was on another",
		walForeign:   "its WAL volume does not belong to its data: it holds other WAL",
		walUnmounted: "the WAL of its data is on a WAL volume, which this pod does not have: put spec.storage.wal back",
	}[s.WAL]
	switch {
	case s.isOfAnotherSystem():
		return s.refuseAnotherSystem()
	case record.IsEmpty():
		return refuse("%s; give the WAL volume back that belongs to %s", what, s.DataPath)
	case holder == s.Me:
		return s.decideLost(record, what)
	case holder == "":
		return wait("%s; waiting for a primary to clone: nobody holds the Lease", what)
	case s.isToClone():
		return decision{Move: moveReclone, Why: "a user asks for it"}
	case s.WAL == walMissing:
		return decision{Move: moveReclone, Why: what}
	case s.WAL == walUnmounted:
		return refuse("%s", what)
	}
	return refuse("%s; give the WAL volume back that belongs to %s, or let the instance copy the primary anew (pgop.dev/reclone=%s)",
		what, s.DataPath, s.Me)
}

// decideLost is for the instance that reigned last and has lost its data.
func (s situation) decideLost(record election.Record, what string) decision {
	if len(record.Members) == 0 {
		return refuse("this instance is the primary of term %d, and %s: nobody else has what was committed; "+
			"give the volume back, or restore the cluster", record.Term, what)
	}
	var names []string
	for _, m := range record.Members {
		names = append(names, m.Instance)
	}
	return wait("%s; waiting for %s to take over", what, strings.Join(names, " or "))
}

// founds says whether this instance's data begins the first reign, while the Lease
// tells of none: it was made here, the cluster counts on this instance, and no reign
// is remembered.
func (s situation) founds() bool {
	members := s.Config.Config.Members
	isOutsider := s.Config.Known && len(members) > 0 && !slices.Contains(members, s.Me)
	return s.Identity.ID != "" && (s.Identity.Origin == byInitdb || s.Identity.Origin == byRestore) && s.Memory.Record.IsEmpty() && !isOutsider
}

func decideWithoutData(s situation) decision {
	record, holder := s.Lease.Record, s.Lease.Holder.Instance
	switch {
	case !record.IsEmpty() && holder == s.Me:
		return s.decideLost(record, fmt.Sprintf("its volume no longer holds the data (%s)", s.Data))
	case !record.IsEmpty() && holder == "":
		return wait("waiting for a primary to clone: nobody holds the Lease")
	case !record.IsEmpty():
		return decision{Move: moveClone, Upstream: upstream{Instance: holder, Address: record.HolderAddress}}
	case s.Config.Config.SystemID != "":
		return wait("waiting for a primary to clone: the database %s exists, and nobody has claimed the Lease", s.Config.Config.SystemID)
	case s.Config.Config.Bootstrap.Instance == s.Me:
		return decideInitdb(s)
	case s.Config.Config.Bootstrap.Instance == "":
		return wait("waiting for a primary to clone")
	}
	return wait("waiting for %s to make the database", s.Config.Config.Bootstrap.Instance)
}

// decideInitdb makes a database only on a volume that has never held one.
func decideInitdb(s situation) decision {
	taken := ""
	switch {
	case s.Data == dataForeign || s.Data == dataDamaged:
		taken = s.DataPath + " is not empty, and not of this cluster's making"
	case s.OtherData != "":
		taken = s.OtherData + " holds data"
	case !s.Memory.Record.IsEmpty():
		taken = fmt.Sprintf("it remembers a reign of %s, whose data is gone", s.Memory.Holder)
	}
	if taken != "" {
		return refuse("no database is made on a volume that has been used: %s; give the instance an empty volume, "+
			"or look after what is there and remove it", taken)
	}
	switch b := s.Config.Config.Bootstrap; {
	case b.Restore != nil && s.GaveUp != "":
		return refuse("%s", s.GaveUp)
	case b.Restore != nil:
		return decision{Move: moveRestore}
	case b.Clone != nil:
		return decision{Move: moveCopy}
	case b.Encoding == "":
		// Whoever asks for data that exists must not get an empty database.
		return wait("waiting to be told how the database is made")
	}
	return decision{Move: moveInitdb}
}

// wantedSystem is the system identifier that data of this cluster must have;
// empty: it is not known yet.
func (s situation) wantedSystem() string {
	if s.Config.Config.SystemID != "" {
		return s.Config.Config.SystemID
	}
	return s.Lease.Record.SystemID
}

// bootstrapChanged says whether a bootstrap that runs, or has failed, should
// begin anew. A copy goes on that has begun at another of the cluster's servers: if
// that one is gone, it fails by itself.
func bootstrapChanged(before, now instanceapi.Config) bool {
	if was, is := before.Bootstrap.Clone, now.Bootstrap.Clone; was != nil && is != nil && was.Cluster == is.Cluster {
		now.Bootstrap.Clone = was
	}
	return !reflect.DeepEqual(before.Bootstrap, now.Bootstrap)
}
