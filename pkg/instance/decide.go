package instance

import (
	"fmt"
	"reflect"

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
	// Reigns is true while this agent holds the Lease by its own claim.
	Reigns bool

	Data     dataKind
	Identity identity
	SystemID string
	// DataPath and OtherData are for messages; OtherData is a data directory
	// elsewhere on the volume.
	DataPath, OtherData string
	Memory              reignMemory
}

// move is what an instance does next.
type move string

const (
	moveWait move = "wait"
	// moveRefuse means that something is wrong that people have to see.
	moveRefuse move = "refuse"
	moveInitdb move = "initdb"
	moveClone  move = "clone"
	// moveReign means to claim the Lease and to serve as the primary.
	moveReign move = "reign"
	// moveFollow means to serve as a replica of Upstream.
	moveFollow move = "follow"
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
	case s.Reigns:
		return decision{Move: moveReign}
	case !s.Lease.Known || !s.Config.Known:
		return decideBlind(s)
	case s.Data == dataComplete:
		return decideWithData(s)
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
	if want := s.wantedSystem(); want != "" && want != s.SystemID {
		return refuse("the volume holds another database (system %s in %s) than this cluster's (%s); it is left alone: "+
			"give the instance another volume, or move that directory away", s.SystemID, s.DataPath, want)
	}
	ok, why := election.MayClaim(s.claimant(), record, holder)
	switch {
	case ok:
		return decision{Move: moveReign}
	case record.IsEmpty():
		return wait("waiting for a primary: %s", why)
	case holder == s.Me:
		return refuse("this instance can't reign again: %s", why)
	case holder == "":
		return wait("waiting for a primary: nobody holds the Lease")
	}
	return follow(holder, record)
}

func decideWithoutData(s situation) decision {
	record, holder := s.Lease.Record, s.Lease.Holder.Instance
	switch {
	case !record.IsEmpty() && holder == s.Me:
		return refuse("this instance is the primary of term %d, and its volume no longer holds the data (%s): "+
			"give the volume back, or restore the cluster", record.Term, s.Data)
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
		taken = s.OtherData + " holds a data directory"
	case !s.Memory.Record.IsEmpty():
		taken = fmt.Sprintf("it remembers a reign of %s, whose data is gone", s.Memory.Holder)
	}
	if taken != "" {
		return refuse("no database is made on a volume that has been used: %s; give the instance an empty volume, "+
			"or look after what is there and remove it", taken)
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

func (s situation) claimant() election.Claimant {
	return election.Claimant{
		Instance: s.Me, DataID: s.Identity.ID, SystemID: s.SystemID,
		Initialised: s.Identity.Origin == byInitdb && s.Memory.Record.IsEmpty(),
		LastReign:   s.Memory.Record, LastHolder: election.ParseHolder(s.Memory.Holder).Instance,
	}
}

// bootstrapChanged says whether a bootstrap that runs, or has failed, should
// begin anew.
func bootstrapChanged(before, now instanceapi.Config) bool {
	return !reflect.DeepEqual(before.Bootstrap, now.Bootstrap)
}
