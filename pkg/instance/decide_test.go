package instance

import (
	"strings"
	"testing"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// record is a reign of shop-1 over the data "one" of system 7.
var record = election.Record{Term: 3, Timeline: 1, SystemID: "7", HolderDataID: "one", HolderAddress: "10.0.0.1"}

func known(bootstrap, systemID string) knownConfig {
	return knownConfig{Known: true, Config: instanceapi.Config{SystemID: systemID,
		Bootstrap: instanceapi.Bootstrap{Instance: bootstrap, Encoding: "UTF8"}}}
}

// restoring is known of a cluster whose database is made of a backup; nil: nobody
// has said yet where it lies.
func restoring(bootstrap string, r *instanceapi.Restore) knownConfig {
	k := known(bootstrap, "")
	k.Config.Bootstrap.Encoding, k.Config.Bootstrap.Restore = "", r
	return k
}

// copying is known of a cluster whose database is a copy of another's.
func copying(bootstrap string) knownConfig {
	k := restoring(bootstrap, nil)
	k.Config.Bootstrap.Clone = &instanceapi.Clone{Cluster: "other"}
	return k
}

func held(by string, r election.Record) knownLease {
	return knownLease{Known: true, Holder: election.ParseHolder(by), Record: r}
}

func complete(me, id string, by origin) situation {
	return situation{Me: me, Data: dataComplete, Identity: identity{ID: id, Origin: by}, SystemID: "7", DataPath: "/pgdata/17/data"}
}

func without(me string, kind dataKind) situation {
	return situation{Me: me, Data: kind, DataPath: "/pgdata/17/data"}
}

// targetOf is what the election core would say.
func targetOf(s situation) election.Target {
	switch holder := s.Lease.Holder.Instance; {
	case s.Lease.Record.HolderDataID == s.Identity.ID:
		return election.Target{Role: election.Staying, Why: "it takes the Lease back"}
	case holder != "" && holder != s.Me:
		return election.Target{Role: election.Following, Upstream: holder}
	}
	return election.Target{Role: election.Following}
}

func TestDecide(t *testing.T) {
	followOne := upstream{Instance: "shop-1", Address: "10.0.0.1"}
	fresh := held("", election.Record{})
	cases := []struct {
		why  string
		s    situation
		lean func(*situation)
		want move
		// says is a part of the reason.
		says string
		up   upstream
	}{
		{why: "nothing known yet", s: without("shop-1", dataNone), want: moveWait, says: "ConfigMap"},
		{why: "no Lease yet", s: without("shop-1", dataNone), lean: func(s *situation) { s.Config = known("shop-1", "") },
			want: moveWait, says: "Lease"},
		{why: "a new cluster's first instance", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveInitdb},
		{why: "its initdb was interrupted", s: without("shop-1", dataUnfinished),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveInitdb},
		{why: "a new cluster's first instance, with a backup", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = restoring("shop-1", &instanceapi.Restore{}), fresh }, want: moveRestore},
		{why: "its restore was interrupted", s: without("shop-1", dataUnfinished),
			lean: func(s *situation) { s.Config, s.Lease = restoring("shop-1", &instanceapi.Restore{}), fresh }, want: moveRestore},
		{why: "its restore has failed for good (D-08)", s: without("shop-1", dataNone),
			lean: func(s *situation) {
				s.Config, s.Lease, s.GaveUp = restoring("shop-1", &instanceapi.Restore{}), fresh, "the archive ends"
			}, want: moveRefuse, says: "the archive ends"},
		{why: "never initdb where a backup is wanted", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = restoring("shop-1", nil), fresh }, want: moveWait, says: "how the database is made"},
		{why: "never a restore over foreign data", s: without("shop-1", dataForeign),
			lean: func(s *situation) { s.Config, s.Lease = restoring("shop-1", &instanceapi.Restore{}), fresh }, want: moveRefuse, says: "/pgdata/17/data is not empty"},
		{why: "a new cluster's first instance, with a cluster to copy", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = copying("shop-1"), fresh }, want: moveCopy},
		{why: "its copy was interrupted", s: without("shop-1", dataUnfinished),
			lean: func(s *situation) { s.Config, s.Lease = copying("shop-1"), fresh }, want: moveCopy},
		{why: "never a copy over foreign data", s: without("shop-1", dataForeign),
			lean: func(s *situation) { s.Config, s.Lease = copying("shop-1"), fresh }, want: moveRefuse, says: "/pgdata/17/data is not empty"},
		{why: "never a copy where there was a reign", s: without("shop-1", dataNone),
			lean: func(s *situation) {
				s.Config, s.Lease, s.Memory = copying("shop-1"), fresh, reignMemory{Holder: "shop-1/a", Record: record}
			}, want: moveRefuse, says: "remembers a reign"},
		{why: "a copy is the first instance's", s: without("shop-2", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = copying("shop-1"), fresh }, want: moveWait, says: "waiting for shop-1"},
		{why: "never a copy once the system is known", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = copying("shop-1"), fresh; s.Config.Config.SystemID = "7" }, want: moveWait, says: "database 7 exists"},
		{why: "claim after a restore", s: complete("shop-1", "one", byRestore),
			lean: func(s *situation) { s.Config, s.Lease = restoring("shop-1", nil), fresh }, want: moveWait, says: "claiming"},
		{why: "a new cluster's other instances", s: without("shop-2", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveWait, says: "waiting for shop-1"},
		{why: "never initdb once the system is known", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", "7"), fresh }, want: moveWait, says: "database 7 exists"},
		{why: "never initdb over foreign data", s: without("shop-1", dataForeign),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveRefuse, says: "/pgdata/17/data is not empty"},
		{why: "never initdb beside other data", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease, s.OtherData = known("shop-1", ""), fresh, "/pgdata/16/data" },
			want: moveRefuse, says: "/pgdata/16/data"},
		{why: "never initdb where there was a reign", s: without("shop-1", dataNone),
			lean: func(s *situation) {
				s.Config, s.Lease, s.Memory = known("shop-1", ""), fresh, reignMemory{Holder: "shop-1/a", Record: record}
			}, want: moveRefuse, says: "remembers a reign"},
		{why: "claim after initdb", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveWait, says: "claiming"},
		{why: "a clone never claims a Lease without record", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) { s.Config, s.Lease = known("shop-1", ""), fresh }, want: moveWait, says: "waiting for a primary"},
		{why: "the holder's data in a new pod", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/old", record) }, want: moveWait, says: "takes the Lease back"},
		{why: "the holder's name with other data", s: complete("shop-1", "new", byClone),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/old", record) }, want: moveRefuse,
			says: "other data"},
		{why: "the holder without data (C-22)", s: without("shop-1", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/old", record) }, want: moveRefuse,
			says: "no longer holds the data"},
		{why: "a replica with data", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/a", record) }, want: moveFollow, up: followOne},
		{why: "a replica without data", s: without("shop-2", dataNone),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/a", record) }, want: moveClone, up: followOne},
		{why: "a replica with foreign data", s: without("shop-2", dataForeign),
			lean: func(s *situation) { s.Config, s.Lease = known("", "7"), held("shop-1/a", record) }, want: moveClone, up: followOne},
		{why: "data of another system than the configuration's", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) { s.Config, s.Lease = known("", "8"), held("shop-1/a", record) }, want: moveRefuse,
			says: "another database (system 7"},
		{why: "data of another system than the record's", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) {
				other := record
				other.SystemID = "8"
				s.Config, s.Lease = known("", ""), held("shop-1/a", other)
			}, want: moveRefuse, says: "(8)"},
		{why: "a Lease that was lost goes back to the last to reign", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) {
				s.Config, s.Lease, s.Memory = known("", "7"), fresh, reignMemory{Holder: "shop-1/a", Record: record}
				s.Target = election.Target{Role: election.Staying, Why: "it takes the Lease back"}
			}, want: moveWait, says: "takes the Lease back"},
		{why: "but not to one that the cluster went on without, such as after a restore in place", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) {
				s.Config, s.Lease, s.Memory = known("shop-4", "7"), fresh, reignMemory{Holder: "shop-1/a", Record: record}
				s.Config.Config.Members = []string{"shop-4"}
				s.Target = election.Target{Role: election.Staying, Why: "the cluster does not count on it"}
			}, want: moveWait, says: "does not count on it"},
		{why: "nor is it founded again by data that one went on without", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) {
				s.Config, s.Lease = known("shop-4", "7"), fresh
				s.Config.Config.Members = []string{"shop-4"}
			}, want: moveWait, says: "waiting for a primary"},
		{why: "and to nobody else", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) {
				s.Config, s.Lease, s.Memory = known("", "7"), fresh, reignMemory{Holder: "shop-1/a", Record: record}
				s.Target = election.Target{Role: election.Staying, Why: "shop-1 has to say first"}
			}, want: moveWait, says: "shop-1 has to say first"},
		{why: "the API is away: a replica follows whom it knows", s: complete("shop-2", "two", byClone),
			lean: func(s *situation) { s.APIAway, s.Memory = true, reignMemory{Holder: "shop-1/a", Record: record} },
			want: moveFollow, up: followOne},
		{why: "the API is away: the primary waits", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) { s.APIAway, s.Memory = true, reignMemory{Holder: "shop-1/a", Record: record} },
			want: moveWait},
		{why: "who reigns goes on", s: complete("shop-1", "one", byInitdb),
			lean: func(s *situation) { s.Target = election.Target{Role: election.Leading} }, want: moveReign},
	}
	for _, c := range cases {
		if c.lean != nil {
			c.lean(&c.s)
		}
		if c.s.Target.Role == "" {
			c.s.Target = targetOf(c.s)
		}
		got := decide(c.s)
		if got.Move != c.want || !strings.Contains(got.Why, c.says) || got.Upstream != c.up {
			t.Errorf("%s: got %+v, want %s of %v that says %q", c.why, got, c.want, c.up, c.says)
		}
	}
}
