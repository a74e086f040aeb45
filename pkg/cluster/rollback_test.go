package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// rollbackCases are what a pass may find of restores in place.
var rollbackCases = []analyseCase{
	{why: "a restore in place is asked for: it is written down before anything is done", change: func(w *world) { w.rolling(v1.RestorePending) }},
	{why: "a restore in place: the instances stop, the primary first", change: func(w *world) { w.rolling(v1.RestoreStopping) }},
	{why: "a restore in place: no pod is left, and the Lease tells of a reign that is over", change: func(w *world) {
		w.rolling(v1.RestoreStopping)
		for len(w.objects["Pod"]) > 0 {
			w.turns(1)
		}
	}},
	{why: "a restore in place: no pod is left, and no address either", change: func(w *world) {
		w.rolling(v1.RestoreStopping)
		for len(w.objects["Pod"]) > 0 || len(w.objects["EndpointSlice"]["shop-rw"].(*discoveryv1.EndpointSlice).Endpoints) > 0 {
			w.turns(1)
		}
	}},
	{why: "a restore in place: a new instance is to be made", change: func(w *world) { w.rolling(v1.RestoreRestoring) }},
	{why: "a restore in place: the new instance serves, and the volumes from before are kept", change: func(w *world) {
		w.rolling(v1.RestoreRestoring)
		for w.observe(); !w.observe().primaryServes(); {
			w.turns(1)
		}
	}},
	{why: "a restore in place: the volumes are kept, and it has come about", change: func(w *world) {
		w.rolling(v1.RestoreRestoring)
		w.turnUntil(v1.ReasonRestoreCompleted)
	}},
	{why: "a restore in place is said to have failed, since the archive lacks what it needs", change: func(w *world) {
		w.bucket.lacks = "the archive lacks segment 000000010000000000000003"
		w.rolling(v1.RestoreRestoring)
		w.turnUntil(v1.ReasonRestoreFailed)
	}},
	{why: "after a restore in place the other instances are made", change: func(w *world) { w.rolling(v1.RestoreCompleted) }},
	{why: "a restore in place: the archive lacks what it needs", change: func(w *world) {
		w.bucket.lacks = "the archive lacks segment 000000010000000000000003"
		w.rolling(v1.RestoreReverting)
	}},
	{why: "a restore in place has failed: the old volumes are used again", change: func(w *world) {
		w.bucket.lacks = "the archive lacks segment 000000010000000000000003"
		w.rolling(v1.RestoreFailed)
	}},
}

// rolling lets a restore in place come as far as that phase.
func (w *world) rolling(phase v1.RestorePhase) {
	w.backedUp()
	w.undo("undo", "first", v1.RestoreTarget{})
	w.catchUp(allKinds...)
	for n := 0; phase != v1.RestorePending && w.restore("undo").Status.Phase != phase; n++ {
		if n > 100 {
			panic("the restore does not become " + phase)
		}
		w.turns(1)
	}
}

// restores is a cache of PostgresRestores.
func (w *world) restores() *Restores {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, RestoreIndexers())
	for _, o := range w.cached["PostgresRestore"] {
		if err := indexer.Add(o); err != nil {
			panic(err)
		}
	}
	return NewRestores(indexer)
}

func (w *world) restore(name string) *v1.PostgresRestore {
	r, _ := w.objects["PostgresRestore"][name].(*v1.PostgresRestore)
	return r
}

// undo makes a PostgresRestore as a user does.
func (w *world) undo(name, backup string, target v1.RestoreTarget) {
	w.store(w.born(&v1.PostgresRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: name},
		Spec:       v1.PostgresRestoreSpec{Cluster: "shop", Backup: backup, Target: target},
	}))
}

// undoable is a settled cluster of three with a backup.
func undoable() *world {
	w := settledWorld(3)
	w.backedUp()
	return w
}

// volumes are the claims by name, with what they hold.
func (w *world) volumes() map[string]types.UID {
	found := map[string]types.UID{}
	for name := range w.objects["PersistentVolumeClaim"] {
		found[name] = w.volume(name).UID
	}
	return found
}

func (w *world) wantPhase(t *testing.T, name string, want v1.RestorePhase, words string) {
	t.Helper()
	if s := w.restore(name).Status; s.Phase != want || !strings.Contains(s.Message, words) {
		t.Errorf("PostgresRestore %s is %s: %s; want %s: %s", name, s.Phase, s.Message, want, words)
	}
}

func (w *world) wantSettled(t *testing.T) {
	t.Helper()
	status, settled := w.settle()
	if !settled || status.ReadyInstances != *w.cluster.Spec.Instances || status.Phase != v1.PhaseHealthy {
		t.Fatalf("not settled: %s, %d ready: %+v", status.Phase, status.ReadyInstances, status.Conditions)
	}
}

// A rollback brings new instances up beside the volumes of the old ones, which are
// kept and never used again, also not by a later cluster of the name.
func TestARestoreInPlaceKeepsTheOldVolumes(t *testing.T) {
	w := undoable()
	before, system := w.volumes(), w.cluster.Status.SystemID
	w.undo("undo", "first", v1.RestoreTarget{})
	w.wantSettled(t)
	w.wantPhase(t, "undo", v1.RestoreCompleted, "")
	s := w.restore("undo").Status
	if diff := cmp.Diff([]string{"shop-1", "shop-2", "shop-3"}, s.KeptVolumes); diff != "" || s.Instance != "shop-4" || s.EndedAt == nil {
		t.Errorf("it tells %+v", s)
	}
	if to := s.RecoveredTo; to == nil || to.LSN != "0/3000148" || to.Time == nil || !to.Time.Equal(ptr.To(metav1.NewMicroTime(recoveredUntil))) {
		t.Errorf("it tells that it recovered to %+v", to)
	}
	for name, uid := range before {
		if live := w.volume(name); live == nil || live.UID != uid || !specs.IsSetAside(live) {
			t.Errorf("volume %s is not kept: %+v", name, live)
		}
	}
	if names := slices.Sorted(maps.Keys(w.objects["Pod"])); !slices.Equal(names, []string{"shop-4", "shop-5", "shop-6"}) || w.cluster.Status.Primary != "shop-4" {
		t.Errorf("the instances are %v, the primary %s", names, w.cluster.Status.Primary)
	}
	if w.cluster.Status.SystemID != system {
		t.Errorf("the system is %s, and was %s", w.cluster.Status.SystemID, system)
	}
	// The object goes, and nothing comes of it.
	w.remove("PostgresRestore", "undo")
	w.wantSettled(t)
	if w.cluster.Status.Primary != "shop-4" || len(w.objects["PersistentVolumeClaim"]) != 6 {
		t.Errorf("without the object: primary %s, volumes %v", w.cluster.Status.Primary, w.volumes())
	}
	// And again.
	w.undo("redo", "", v1.RestoreTarget{})
	w.wantSettled(t)
	w.wantPhase(t, "redo", v1.RestoreCompleted, "")
	if kept := w.restore("redo").Status.KeptVolumes; !slices.Equal(kept, []string{"shop-4", "shop-5", "shop-6"}) {
		t.Errorf("the second keeps %v", kept)
	}
}

// An instance that was made in the very moment, so that its number seemed free, keeps
// its volume as the others do, and another is made of the backup.
func TestARestoreInPlaceTakesNoNumberThatIsInUse(t *testing.T) {
	w := settledWorld(3)
	w.rolling(v1.RestoreStopping)
	chosen := w.restore("undo").Status.Instance
	w.store(w.born(specs.Volume(w.cluster, chosen)))
	w.catchUp(allKinds...)
	for n := 0; w.restore("undo").Status.Phase == v1.RestoreStopping; n++ {
		if n > 100 {
			t.Fatal("the instances do not stop")
		}
		w.turns(1)
	}
	if s := w.restore("undo").Status; s.Instance == chosen || !slices.Contains(s.KeptVolumes, chosen) {
		t.Errorf("%s is made of the backup, and %v are kept; %s was there before", s.Instance, s.KeptVolumes, chosen)
	}
}

// Roles and databases count as they did while a cluster is rolled back; the new primary
// brings them to what is declared.
func TestRolesOfAClusterThatIsRolledBack(t *testing.T) {
	w := settledWorld(3)
	w.settleWith(declareSome)
	w.rolling(v1.RestoreRestoring)
	if reason := reasonOf(w.cluster.Status, v1.ConditionDatabasesReady); reason != v1.ReasonAsDeclared || !w.cluster.Status.Roles[0].Ready {
		t.Errorf("meanwhile DatabasesReady says %s, and the roles are %+v", reason, w.cluster.Status.Roles)
	}
	if got := w.told().Declared; got.IsEmpty() {
		t.Errorf("meanwhile the agents are told %+v", got)
	}
	w.wantSettled(t)
	w.wantPhase(t, "undo", v1.RestoreCompleted, "")
	if state := w.observe().declaredState(); w.cluster.Status.Primary != "shop-4" || state == nil || state.Hash != w.told().Declared.Hash() {
		t.Errorf("%s says %+v of what is declared", w.cluster.Status.Primary, state)
	}
}

// One that fails, and one that is deleted on its way, puts the old data back, with the
// primary that was the last.
func TestARestoreInPlaceThatDoesNotComeAbout(t *testing.T) {
	for why, fail := range map[string]func(w *world){
		"the archive lacks a segment": func(w *world) { w.turns(4) },
		"it is deleted while instances stop": func(w *world) {
			w.turns(2)
			w.remove("PostgresRestore", "undo")
		},
		"it is deleted while it restores": func(w *world) {
			for n := 0; w.restore("undo").Status.Phase != v1.RestoreRestoring; n++ {
				if n > 100 {
					panic("it never restores")
				}
				w.turns(1)
			}
			w.remove("PostgresRestore", "undo")
		},
	} {
		t.Run(why, func(t *testing.T) {
			w := undoable()
			w.bucket.lacks = "the archive lacks segment 000000010000000000000003"
			before := map[string]string{}
			for name, uid := range w.volumes() {
				before[name] = fmt.Sprint(uid, w.data[uid].dataID)
			}
			w.undo("undo", "first", v1.RestoreTarget{})
			fail(w)
			w.wantSettled(t)
			if w.restore("undo") != nil {
				w.wantPhase(t, "undo", v1.RestoreFailed, w.bucket.lacks)
			}
			after := map[string]string{}
			for name, uid := range w.volumes() {
				after[name] = fmt.Sprint(uid, w.data[uid].dataID)
				if specs.IsSetAside(w.volume(name)) {
					t.Errorf("volume %s is still set aside", name)
				}
			}
			if diff := cmp.Diff(before, after); diff != "" || w.cluster.Status.Primary != "shop-1" {
				t.Errorf("the old data is not back: primary %s, %s", w.cluster.Status.Primary, diff)
			}
		})
	}
}

// It is deleted while the new instance claims the Lease, and nobody but that instance
// knows of the claim yet. It has come about: what has reigned is not taken back.
func TestARestoreInPlaceThatIsDeletedAsItServes(t *testing.T) {
	allButTheLease := slices.DeleteFunc(slices.Clone(allKinds), func(kind string) bool { return kind == "Lease" })
	for hidden := range 5 {
		w := settledWorld(3)
		w.rolling(v1.RestoreRestoring)
		for !w.isLed() {
			w.pass()
			w.kubernetes()
			w.agents()
			w.catchUp(allButTheLease...)
		}
		restored := w.volume("shop-4").UID
		w.remove("PostgresRestore", "undo")
		for range hidden {
			w.catchUp(allButTheLease...)
			w.pass()
			w.kubernetes()
			w.agents()
		}
		w.wantSettled(t)
		if live := w.volume("shop-4"); live == nil || live.UID != restored || w.cluster.Status.Primary != "shop-4" {
			t.Errorf("after %d passes that did not know: primary %s, volume %v", hidden, w.cluster.Status.Primary, live)
		}
		for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
			if old := w.volume(name); old == nil || old.Annotations[specs.KeptAnnotation] != "undo" {
				t.Errorf("after %d passes that did not know: volume %s is not kept", hidden, name)
			}
		}
	}
}

// E-03: while the operator is away, the new instance begins to serve, and the cluster
// is deleted and made again. Nobody knows of the reign, but what may have served is
// not deleted.
func TestE03ARestoreInPlaceOfAClusterThatIsMadeAgain(t *testing.T) {
	w := settledWorld(3)
	w.rolling(v1.RestoreRestoring)
	for !w.isLed() {
		w.turns(1)
	}
	restored := w.volume("shop-4").UID
	w.remove("PostgresRestore", "undo")
	w.remake()
	w.settle()
	if live := w.volume("shop-4"); live == nil || live.UID != restored {
		t.Errorf("the restored volume is gone: %v", live)
	}
}

// What it needs is taken away while it is under way: nobody makes an empty database
// instead, and the old data comes back.
func TestARestoreInPlaceWhoseStoreIsTakenAway(t *testing.T) {
	for _, phase := range []v1.RestorePhase{v1.RestoreStopping, v1.RestoreRestoring} {
		w := settledWorld(3)
		w.rolling(phase)
		system := w.cluster.Status.SystemID
		w.edit(func(s *v1.PostgresClusterSpec) { s.Backup = nil })
		w.wantSettled(t)
		w.wantPhase(t, "undo", v1.RestoreFailed, "spec.backup was removed")
		if id, _ := w.observe().systemID(); id != system || w.cluster.Status.Primary != "shop-1" {
			t.Errorf("%s: the database is %s, of %s, and was %s", phase, id, w.cluster.Status.Primary, system)
		}
		for name := range w.volumes() {
			if specs.IsSetAside(w.volume(name)) {
				t.Errorf("%s: volume %s is still set aside", phase, name)
			}
		}
	}
}

// isLed says whether the Lease tells of a reign, seen by whoever asks the API server.
func (w *world) isLed() bool { return Observation{Lease: w.lease()}.isLed() }

// remake deletes the cluster, whose volumes are retained, and makes it again.
func (w *world) remake() {
	w.cluster = w.cluster.DeepCopy()
	w.cluster.UID, w.cluster.Status = "cluster-2", v1.PostgresClusterStatus{}
	for kind, objects := range w.objects {
		if kind != "PersistentVolumeClaim" && kind != v1.BackupKind {
			clear(objects)
		}
	}
	for name := range w.volumes() {
		change(w, name, func(claim *corev1.PersistentVolumeClaim) { claim.OwnerReferences = nil })
	}
}

// One that is held up says by what, and goes on when that is over.
func TestARestoreInPlaceThatIsHeldUp(t *testing.T) {
	for _, phase := range []v1.RestorePhase{v1.RestoreStopping, v1.RestoreRestoring} {
		for words, hold := range map[string]func(s *v1.PostgresClusterSpec, on bool){
			"spec.paused is true": func(s *v1.PostgresClusterSpec, on bool) { s.Paused = on },
			"spec.instances: 0": func(s *v1.PostgresClusterSpec, on bool) {
				if s.Instances = ptr.To[int32](3); on {
					s.Instances = ptr.To[int32](0)
				}
			},
		} {
			w := settledWorld(3)
			w.rolling(phase)
			w.edit(func(s *v1.PostgresClusterSpec) { hold(s, true) })
			w.settle()
			if s := w.restore("undo").Status; !strings.Contains(s.Message, words) {
				t.Errorf("%s: it says %s: %q, want %s", phase, s.Phase, s.Message, words)
			}
			if ready := meta.FindStatusCondition(w.cluster.Status.Conditions, v1.ConditionReady); !strings.Contains(ready.Message, words) {
				t.Errorf("%s: the cluster says %q, want %s", phase, ready.Message, words)
			}
			w.edit(func(s *v1.PostgresClusterSpec) { hold(s, false) })
			w.wantSettled(t)
			w.wantPhase(t, "undo", v1.RestoreCompleted, "")
		}
	}
}

// turns lets everybody take so many turns.
func (w *world) turns(turns int) {
	for range turns {
		w.pass()
		w.kubernetes()
		w.agents()
		w.catchUp(allKinds...)
	}
}

// What can't be is refused before anything is stopped.
func TestWhatCantBeRolledBack(t *testing.T) {
	pure(t)
	for why, c := range map[string]struct {
		prepare func(w *world)
		backup  string
		target  v1.RestoreTarget
		phase   v1.RestorePhase
		words   string
	}{
		"no such backup":         {nil, "second", v1.RestoreTarget{}, v1.RestoreFailed, "spec.backup: cluster shop has no PostgresBackup second"},
		"D-17: a failed backup":  {func(w *world) { w.made("bad", v1.PostgresBackupStatus{Phase: v1.BackupFailed}) }, "bad", v1.RestoreTarget{}, v1.RestoreFailed, "spec.backup: backup bad is not complete (Failed)"},
		"a time before it":       {nil, "first", v1.RestoreTarget{Time: "2020-01-01T00:00:00Z"}, v1.RestoreFailed, "spec.target.time: backup first was complete at"},
		"a time before any":      {nil, "", v1.RestoreTarget{Time: "2020-01-01T00:00:00Z"}, v1.RestoreFailed, "spec.target.time: the oldest backup was complete at"},
		"a position before it":   {nil, "first", v1.RestoreTarget{LSN: "0/20000FF"}, v1.RestoreFailed, "spec.target.lsn: backup first was complete at 0/2000120"},
		"a position before any":  {nil, "", v1.RestoreTarget{LSN: "0/20000FF"}, v1.RestoreFailed, "spec.target.lsn: the oldest backup was complete at 0/2000120"},
		"D-08: a time to come":   {nil, "", v1.RestoreTarget{Time: "2036-01-01T00:00:00Z"}, v1.RestoreFailed, "is in the future"},
		"a name without backup":  {nil, "", v1.RestoreTarget{Name: "x"}, v1.RestoreFailed, "spec.backup: it can't be told which backup comes before the target"},
		"no store":               {func(w *world) { w.edit(func(s *v1.PostgresClusterSpec) { s.Backup = nil }) }, "", v1.RestoreTarget{}, v1.RestoreFailed, "has no spec.backup"},
		"paused":                 {func(w *world) { w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = true }) }, "", v1.RestoreTarget{}, v1.RestorePending, "spec.paused is true"},
		"stopped":                {func(w *world) { w.edit(func(s *v1.PostgresClusterSpec) { s.Instances = ptr.To[int32](0) }) }, "", v1.RestoreTarget{}, v1.RestorePending, "the cluster is stopped"},
		"a spec that is refused": {func(w *world) { w.edit(func(s *v1.PostgresClusterSpec) { s.Postgres.HBA = []string{"nonsense"} }) }, "", v1.RestoreTarget{}, v1.RestorePending, "the cluster's spec is not accepted"},
	} {
		t.Run(why, func(t *testing.T) {
			w := undoable()
			if c.prepare != nil {
				c.prepare(w)
			}
			w.undo("undo", c.backup, c.target)
			w.settle()
			w.wantPhase(t, "undo", c.phase, c.words)
			for name := range w.volumes() {
				if specs.IsSetAside(w.volume(name)) {
					t.Errorf("volume %s was set aside", name)
				}
			}
		})
	}
}
