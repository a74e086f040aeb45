package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// From whatever people, nodes and half a pass on stale caches make of a
// cluster, passes lead to where nothing is left to do, and the status says so
// and is not written again (F-04). On the way no status contradicts itself
// (F-03), and no pass takes the last copy of the data.
func TestPassesConverge(t *testing.T) {
	pure(t)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(int32(rapid.IntRange(1, 4).Draw(t, "instances")))
		if rapid.Bool().Draw(t, "a copy of another cluster") {
			w.copies()
			w.otherServes(asItIs, instanceapi.RolePrimary, instanceapi.RoleReplica)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":     func(t *rapid.T) { checkStatus(t, w.cluster) },
			"pass": func(t *rapid.T) { w.catchUp(allKinds...); checkedPass(t, w) },
			"stale pass": func(t *rapid.T) {
				w.catchUp(rapid.SliceOfDistinct(rapid.SampledFrom(allKinds), rapid.ID).Draw(t, "kinds")...)
				checkedPass(t, w)
			},
			"kubernetes": func(*rapid.T) { w.kubernetes() },
			"agents":     func(*rapid.T) { w.agents() },
			"time":       func(*rapid.T) { w.now = w.now.Add(7 * time.Second) },
			"settle":     func(*rapid.T) { w.settle() },

			"scale": func(t *rapid.T) {
				n := rapid.Int32Range(0, 4).Draw(t, "instances")
				w.edit(func(s *v1.PostgresClusterSpec) { s.Instances = &n })
			},
			"pause or go on": func(t *rapid.T) {
				paused := rapid.Bool().Draw(t, "paused")
				w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = paused })
			},
			"set a parameter": func(t *rapid.T) {
				set := rapid.SampledFrom([][2]string{{"work_mem", "1MB"}, {"listen_addresses", "1MB"}, {"max_connections", "50"}, {"max_connections", "300"},
					{"shared_preload_libraries", "auto_explain"}, {"shared_preload_libraries", noLibrary}}).Draw(t, "parameter")
				w.edit(func(s *v1.PostgresClusterSpec) {
					s.Postgres.Parameters = map[string]v1.ParameterValue{set[0]: v1.NewParameter(set[1])}
				})
			},
			"change the template": func(t *rapid.T) {
				cpu := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "cpu")
				w.edit(func(s *v1.PostgresClusterSpec) {
					s.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
				})
			},
			"elect": func(*rapid.T) { w.elect() },
			"ask for something": func(t *rapid.T) {
				w.annotate(rapid.SampledFrom(requests).Draw(t, "request"), drawInstance(t))
			},
			"ask for nothing": func(t *rapid.T) {
				w.cluster = w.cluster.DeepCopy()
				delete(w.cluster.Annotations, rapid.SampledFrom(requests).Draw(t, "request"))
			},
			"cordon a node or not": func(t *rapid.T) {
				w.cordon(drawInstance(t), rapid.Bool().Draw(t, "cordoned"))
			},
			"lose a node with a volume": func(t *rapid.T) {
				name := drawInstance(t)
				if volume := w.volume(name); volume != nil && specs.IsProvisioned(volume) {
					w.lost[volume.UID] = "node"
					delete(w.objects["Pod"], name)
				}
			},
			"ask for a restart": func(t *rapid.T) {
				w.request(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"))
			},
			"ask for new passwords": func(t *rapid.T) {
				w.annotate(v1.RotateAnnotation, rapid.SampledFrom([]string{"all", "app", "reporting", "theirs", "nobody"}).Draw(t, "role"))
			},
			"declare roles or none": func(t *rapid.T) {
				some, certified := rapid.Bool().Draw(t, "some"), rapid.Bool().Draw(t, "with a certificate")
				w.edit(func(s *v1.PostgresClusterSpec) {
					if s.Roles, s.Databases = nil, nil; some {
						declareSome(s)
						s.Roles[0].ClientCertificate = certified
					}
				})
			},
			"grow": func(*rapid.T) {
				w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Size.Add(resource.MustParse("1Gi")) })
			},
			"change the storage class": func(t *rapid.T) {
				w.class(rapid.SampledFrom([]string{"", "standard", "fast"}).Draw(t, "class"))
			},
			"ask for WAL volumes": func(t *rapid.T) {
				w.wal(rapid.SampledFrom([]string{"512Mi", "1Gi"}).Draw(t, "size"), rapid.SampledFrom([]string{"", "fast"}).Draw(t, "WAL class"))
			},
			"take WAL volumes back": func(t *rapid.T) {
				if size := w.cluster.Status.WALVolumeSize; size == nil || size.IsZero() { // as the schema allows
					w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.WAL = nil })
				}
			},
			"delete a WAL volume": func(t *rapid.T) {
				w.remove("PersistentVolumeClaim", specs.WALVolumeName(drawInstance(t)))
			},
			"switch the mode": func(t *rapid.T) {
				mode := rapid.SampledFrom([]v1.ReplicationMode{v1.ReplicationAsync, v1.ReplicationSync}).Draw(t, "mode")
				w.edit(func(s *v1.PostgresClusterSpec) {
					s.Replication = v1.ReplicationSpec{Mode: mode, Durability: v1.DurabilityPreferred}
				})
			},
			"ask for backups": func(*rapid.T) { w.backUp(v1.BackupSchedule{Name: "often", Cron: "* * * * *"}) },
			"give backups up": func(*rapid.T) { w.edit(func(s *v1.PostgresClusterSpec) { s.Backup = nil }) },
			"ask for a backup": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "backup")
				kind := rapid.SampledFrom([]v1.BackupType{v1.BackupFull, v1.BackupIncremental}).Draw(t, "type")
				if w.backup(name) == nil {
					w.order(name, kind)
				}
			},
			"the store is away or back": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "away") {
					w.storeGoes("connection refused")
				} else {
					w.storeComesBack()
				}
			},
			"ask for proofs": func(*rapid.T) {
				w.backUp()
				w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Verify = &v1.VerifySpec{Cron: "* * * * *"} })
			},
			"proofs end well, badly or not": func(t *rapid.T) {
				w.bucket.proof = rapid.SampledFrom([]*instanceapi.Proof{nil, {Failed: "it is damaged"}, {Until: w.now}}).Draw(t, "proof")
			},
			"the pod of a proof goes":  func(t *rapid.T) { w.remove("Pod", "shop-verify") },
			"backups take long or not": func(t *rapid.T) { w.bucket.slow = rapid.Bool().Draw(t, "slow") },
			"a backup goes from the store": func(*rapid.T) {
				if n := len(w.bucket.backups); n > 0 {
					w.bucket.backups = w.bucket.backups[1:]
				}
			},
			"somebody's backup is in the store": func(t *rapid.T) {
				w.found(rapid.SampledFrom([]string{"a", "x", "Not A Name"}).Draw(t, "name"))
			},
			"an agent that takes a backup is silent": func(t *rapid.T) {
				w.silent = time.Duration(rapid.IntRange(0, 1).Draw(t, "minutes")) * time.Minute
			},

			"roll back": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"undo", "redo"}).Draw(t, "restore")
				if w.restore(name) == nil {
					w.undo(name, rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "of"), v1.RestoreTarget{})
				}
			},
			"take a restore back": func(t *rapid.T) {
				w.remove("PostgresRestore", rapid.SampledFrom([]string{"undo", "redo"}).Draw(t, "restore"))
			},
			"backups can be restored or not": func(t *rapid.T) {
				w.bucket.lacks = rapid.SampledFrom([]string{"", "the archive lacks a segment"}).Draw(t, "lacks")
			},

			"the other cluster serves, or does not, or is gone": func(t *rapid.T) {
				w.otherServes(asItIs, instanceapi.RolePrimary, instanceapi.RoleReplica)
				for _, name := range []string{"other-1", "other-2"} {
					if rapid.Bool().Draw(t, name+" is not ready") {
						w.otherPod(name, notReady)
					}
				}
				if rapid.Bool().Draw(t, "gone") {
					w.others = nil
				}
			},

			"switch retain": func(t *rapid.T) {
				retain := rapid.SampledFrom([]v1.RetainPolicy{v1.RetainVolumes, v1.DeleteVolumes}).Draw(t, "retain")
				w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Retain = retain })
			},

			"nodes fill up or not":  func(t *rapid.T) { w.full = rapid.Bool().Draw(t, "full") },
			"cut or reach an agent": func(t *rapid.T) { w.cut[drawInstance(t)] = rapid.Bool().Draw(t, "cut") },
			"delete a pod":          func(t *rapid.T) { w.remove("Pod", drawInstance(t)) },
			"evict a pod": func(t *rapid.T) {
				change(w, drawInstance(t), func(p *corev1.Pod) {
					p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
				})
			},
			"delete a volume and its pod": func(t *rapid.T) {
				name := drawInstance(t)
				w.remove("PersistentVolumeClaim", name)
				w.remove("Pod", name)
			},
			"delete any other object": func(t *rapid.T) {
				kind, name := drawObject(t, w)
				w.remove(kind, name)
			},
			"take an object's labels": func(t *rapid.T) {
				kind, name := drawObject(t, w)
				stripped := w.objects[kind][name].DeepCopyObject().(object)
				stripped.SetLabels(map[string]string{"mine": "yes"})
				w.store(stripped)
			},
			"take a pod's role": func(t *rapid.T) {
				change(w, drawInstance(t), func(p *corev1.Pod) { delete(p.Labels, specs.RoleLabel) })
			},
			"edit a Service's selector": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"shop-rw", "shop-ro", "shop-r", "shop-pods"}).Draw(t, "service")
				change(w, name, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "mine"} })
			},
		})

		w.full = false
		clear(w.cut)
		clear(w.lost)
		w.nodes = nil
		w.elections = true
		w.otherServes(asItIs, instanceapi.RolePrimary)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Postgres.Parameters, s.Paused = nil, false })
		if w.cluster.Spec.Backup != nil {
			w.edit(func(s *v1.PostgresClusterSpec) { s.Backup.Schedules, s.Backup.Verify = nil, nil }) // or there is always something to do
		}
		w.storeComesBack()
		w.bucket.slow, w.silent = false, 0
		status, settled := w.settle()
		if w.cluster.Spec.Storage.WAL == nil && w.hasWALVolumes() { // taken back too late
			w.wal("512Mi", "")
			status, settled = w.settle()
		}
		for settled && w.isRotating() { // which takes its time
			w.now = w.now.Add(2 * time.Hour)
			status, settled = w.settle()
		}
		if settled { // so that what is gone from the store is missed
			w.now = w.now.Add(unlistedPatience)
			status, settled = w.settle()
		}
		if !settled {
			p := Analyse(w.observe())
			t.Fatalf("still at work: %v\nchange %+v, restart %v, switchover %v\nphase %s\n%v", planned(w), p.Change, p.Restart, p.Switchover, status.Phase, w.cluster.Status.Conditions)
		}
		if *w.cluster.Spec.Instances == 0 {
			checkStopped(t, w)
		} else if healthy := status.Phase == v1.PhaseHealthy; healthy == primaryIsLost(w) {
			t.Errorf("settled as %s; the primary's data is lost: %v\n%+v", status.Phase, !healthy, status)
		}
		upToDate := meta.IsStatusConditionTrue(status.Conditions, v1.ConditionUpToDate) || reasonOf(status, v1.ConditionUpToDate) == v1.ReasonVolumeClassKept
		if status.Phase == v1.PhaseHealthy && !upToDate {
			t.Errorf("settled, and not up to date: %+v", status)
		}
		if status.Phase == v1.PhaseHealthy && !meta.IsStatusConditionTrue(status.Conditions, v1.ConditionDatabasesReady) {
			t.Errorf("settled, and roles are not as declared: %+v", status)
		}
		if status.Phase == v1.PhaseHealthy && len(w.cluster.Annotations) > 0 {
			t.Errorf("settled, and requests are still there: %v", w.cluster.Annotations)
		}
		if told := w.observe().told(); status.Phase == v1.PhaseHealthy && (told.Switchover != nil || told.Reclone != nil || told.ForcePromote != nil) {
			t.Errorf("settled, and the agents are still asked for something: %+v", told)
		}
		if w.cluster.Status.SystemID != "" && (w.secret("shop-clone") != nil || w.told().Bootstrap.Clone != nil) {
			t.Error("settled, and the other cluster may still be copied")
		}
		checkBackups(t, w)
		checkRestores(t, w)
		if status.Phase == v1.PhaseHealthy {
			checkLogins(t, w)
		}
		checkIdle(t, w)
	})
}

// checkBackups wants every backup to have ended in a cluster that serves and has a
// store, and the objects to be what the store holds.
func checkBackups(t *rapid.T, w *world) {
	if w.cluster.Spec.Backup == nil || !meta.IsStatusConditionTrue(w.cluster.Status.Conditions, v1.ConditionPrimaryAvailable) {
		return
	}
	if told := w.told().TakeBackup; told != nil {
		t.Errorf("settled, and an agent is still asked for backup %+v", told)
	}
	shown := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(w.objects[v1.BackupKind])) {
		b := w.backup(name)
		if !hasEnded(b) {
			t.Errorf("settled, and %s is %s: %s", name, b.Status.Phase, b.Status.Message)
		}
		if b.Status.Phase == v1.BackupCompleted {
			shown[b.Status.ID]++
		}
	}
	stored := map[string]int{}
	for _, info := range w.bucket.backups {
		stored[info.ID] = 1
	}
	if diff := cmp.Diff(stored, shown); diff != "" {
		t.Errorf("what the store holds, and what objects show: %s", diff)
	}
}

// checkLogins wants the server to have the password of each login.
func checkLogins(t interface{ Errorf(string, ...any) }, w *world) {
	for _, l := range specs.Logins(v1.WithDefaults(w.cluster)) {
		login := w.secret(l.Secret)
		if login == nil || specs.NextPassword(login) != "" || login.Annotations[specs.RotationAskedAnnotation] != "" {
			t.Errorf("settled, and the login of %s is %v", l.Role, login)
			continue
		}
		if got := string(login.Data[instanceapi.PasswordKey]); got == "" || got != w.passwords[l.Role] {
			t.Errorf("settled, and the password of %s is not that of the server", l.Role)
		}
	}
}

// checkRestores wants no restore to be under way in a cluster that runs.
func checkRestores(t *rapid.T, w *world) {
	if *w.cluster.Spec.Instances == 0 || w.cluster.Status.Phase != v1.PhaseHealthy {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects["PostgresRestore"])) {
		if s := w.restore(name).Status; s.Phase != v1.RestoreCompleted && s.Phase != v1.RestoreFailed {
			t.Errorf("settled, and %s is %s: %s", name, s.Phase, s.Message)
		}
	}
	for name := range w.objects["PersistentVolumeClaim"] {
		if restore, _, is := specs.SetAsideFor(w.volume(name)); is {
			t.Errorf("settled, and %s is still set aside for %s", name, restore)
		}
	}
}

func (w *world) hasWALVolumes() bool {
	for name := range w.objects["PersistentVolumeClaim"] {
		if _, isWAL := specs.InstanceOfWALVolume(name); isWAL && specs.IsProvisioned(w.volume(name)) {
			return true
		}
	}
	return false
}

// checkStopped wants nothing to run, and no request to be left.
func checkStopped(t *rapid.T, w *world) {
	s := w.cluster.Status
	if s.Phase != v1.PhaseStopped || s.Instances != 0 || len(w.objects["Pod"]) > 0 {
		t.Errorf("settled as %s, with %d instances and pods %v", s.Phase, s.Instances, slices.Sorted(maps.Keys(w.objects["Pod"])))
	}
	if len(w.cluster.Annotations) > 0 {
		t.Errorf("stopped, and requests are still there: %v", w.cluster.Annotations)
	}
}

// checkIdle lets time go by and lists come in another order: nothing may be
// planned or written. (Listers walk maps, so no two lists have one order.)
func checkIdle(t *rapid.T, w *world) {
	before, writes := w.cluster.Status, w.statusWrites
	for range 3 {
		w.now = w.now.Add(time.Hour)
		w.catchUp(allKinds...)
		_, p, status := w.pass()
		if len(p.Actions) > 0 {
			t.Errorf("an idle cluster is changed: %v", p.Actions)
		}
		if diff := cmp.Diff(before, status); diff != "" || w.statusWrites != writes {
			t.Errorf("the status of an idle cluster changes:\n%s", diff)
		}
	}
}

// checkedPass is a pass that must not take the last copy of the data.
func checkedPass(t *rapid.T, w *world) {
	had := len(w.data) > 0
	o, p, status := w.pass()
	if o.Cluster.Spec.Paused && slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb != Report && !a.Owed }) {
		t.Errorf("paused, and yet: %v", p.Actions)
	}
	checkTaken(t, o, p)
	for _, a := range p.Actions {
		if p.Stop && a.Verb == Delete && kindOf(a.Object) == "PersistentVolumeClaim" {
			t.Errorf("%v, while the cluster is stopped", a)
		}
		volume, isVolume := a.Object.(*corev1.PersistentVolumeClaim)
		if a.Reason == v1.ReasonNodeLost && (volume.Name == o.primaryName() || !o.primaryServes()) {
			t.Errorf("%v is given up, while %q is primary, and serves: %v", a, o.primaryName(), o.primaryServes())
		}
		if a.Verb == Delete && isVolume && o.isGivenUp(find(o, strings.TrimSuffix(volume.Name, "-wal"))) {
			t.Errorf("%v, which is to be kept", a)
		}
		if a.Verb != Delete || !isVolume {
			continue
		}
		if !specs.IsProvisioned(volume) {
			if live := w.volume(volume.Name); live != nil && live.DeletionTimestamp != nil && w.data[live.UID] != nil {
				t.Errorf("%v: it was never provisioned when it was seen, and now it holds data", a)
			}
			continue
		}
		instance, isWAL := specs.InstanceOfWALVolume(volume.Name)
		told := o.told().Reclone
		isReplaced := isWAL && (w.volume(instance) == nil || w.volume(instance).DeletionTimestamp != nil) ||
			told != nil && told.NewVolumes && told.Instance == instance && !specs.HasStorageClass(volume, o.Cluster)
		if slices.Contains(p.Members, instance) && !isReplaced || instance == o.primaryName() || !o.primaryServes() {
			t.Errorf("%v, while %q is primary, and serves: %v", a, o.primaryName(), o.primaryServes())
		}
	}
	if had && len(w.data) == 0 {
		t.Error("the last copy is gone")
	}
	w.cluster.Status = status
}

// checkTaken wants an agent to be asked for one backup at most, that somebody wants.
func checkTaken(t *rapid.T, o Observation, p Plan) {
	if p.TakeBackup == nil {
		return
	}
	n := slices.IndexFunc(o.Backups, func(b *v1.PostgresBackup) bool { return b.Status.ID == p.TakeBackup.ID })
	if n < 0 || hasEnded(o.Backups[n]) || isFound(o.Backups[n]) {
		t.Errorf("an agent is asked for %+v, which nobody wants", p.TakeBackup)
	}
	if told := o.told().TakeBackup; told != nil && told.ID == p.TakeBackup.ID && *told != *p.TakeBackup {
		t.Errorf("a backup is asked for twice: %+v, then %+v", told, p.TakeBackup)
	}
}

// checkStatus looks for contradictions.
func checkStatus(t *rapid.T, c *v1.PostgresCluster) {
	s := c.Status
	if s.Phase == "" {
		return // before the first pass
	}
	is := func(kind string) bool { return meta.IsStatusConditionTrue(s.Conditions, kind) }
	ready := int32(0)
	for _, m := range s.Members {
		if m.Ready {
			ready++
		}
	}
	claims := map[string]bool{
		"every condition is there":    len(s.Conditions) == 11,
		"each condition has a reason": !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Reason == "" }),
		"each False has a message, unless it is good news": !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionFalse && c.Message == "" && c.Reason != v1.ReasonSettled
		}),
		"readyInstances counts the ready members":        s.ReadyInstances == ready,
		"Ready means that a primary takes writes":        !is(v1.ConditionReady) || is(v1.ConditionPrimaryAvailable),
		"Ready means that every replica streams":         !is(v1.ConditionReady) || is(v1.ConditionReplicating),
		"Replicating of many means Ready":                !is(v1.ConditionReplicating) || is(v1.ConditionReady) || *c.Spec.Instances == 1 || s.ObservedGeneration != c.Generation,
		"Healthy means Ready":                            s.Phase != v1.PhaseHealthy || is(v1.ConditionReady),
		"Healthy means that nothing is under way":        s.Phase != v1.PhaseHealthy || !is(v1.ConditionProgressing),
		"Healthy means that the spec is accepted":        s.Phase != v1.PhaseHealthy || is(v1.ConditionSpecAccepted),
		"Invalid means that the spec is refused":         (s.Phase == v1.PhaseInvalid) == !is(v1.ConditionSpecAccepted),
		"Unavailable means that no primary writes":       s.Phase != v1.PhaseUnavailable || !is(v1.ConditionPrimaryAvailable),
		"Creating ends with the first database":          s.Phase != v1.PhaseCreating || s.SystemID == "" && !is(v1.ConditionPrimaryAvailable),
		"Degraded means that a primary takes writes":     s.Phase != v1.PhaseDegraded || is(v1.ConditionPrimaryAvailable),
		"who can take over is not asked of one instance": reasonOf(s, v1.ConditionFailoverReady) != v1.ReasonSingleInstance || is(v1.ConditionFailoverReady),
		"nobody takes over from a primary that serves":   !is(v1.ConditionPrimaryAvailable) || reasonOf(s, v1.ConditionFailoverReady) != v1.ReasonFailoverBlocked,
		"a primary that takes writes has a name":         !is(v1.ConditionPrimaryAvailable) || s.Primary != "",
		"Stopped means that none runs":                   s.Phase != v1.PhaseStopped || s.Instances == 0 && s.ReadyInstances == 0 && !is(v1.ConditionReady) && !is(v1.ConditionPrimaryAvailable),
		"Paused and Progressing agree":                   (s.Phase == v1.PhasePaused) == (is(v1.ConditionSpecAccepted) && reasonOf(s, v1.ConditionProgressing) == v1.ReasonPaused),
		"members are sorted":                             slices.IsSortedFunc(s.Members, func(a, b v1.MemberStatus) int { return numberOf(a.Name) - numberOf(b.Name) }),
	}
	for _, claim := range slices.Sorted(maps.Keys(claims)) {
		if !claims[claim] {
			t.Errorf("untrue: %s\n%+v", claim, s)
		}
	}
}

func numberOf(name string) int {
	n, _ := specs.InstanceNumber("shop", name)
	return n
}

func planned(w *world) []string {
	texts := []string{}
	for _, a := range Analyse(w.observe()).Actions {
		texts = append(texts, a.String())
	}
	return texts
}

// requests are what users ask for with the name of an instance.
var requests = []string{v1.SwitchoverAnnotation, v1.RecloneAnnotation, v1.ForcePromoteAnnotation}

func drawInstance(t *rapid.T) string {
	return fmt.Sprintf("shop-%d", rapid.IntRange(1, 4).Draw(t, "instance"))
}

// drawObject draws one of the objects that hold no data and are no pod.
func drawObject(t *rapid.T, w *world) (kind, name string) {
	all := []string{}
	for _, kind := range allKinds {
		if kind == "Pod" || kind == "PersistentVolumeClaim" {
			continue
		}
		for name := range w.objects[kind] {
			all = append(all, kind+" "+name)
		}
	}
	if len(all) == 0 {
		t.Skip("there is none yet")
	}
	slices.Sort(all)
	if _, err := fmt.Sscan(rapid.SampledFrom(all).Draw(t, "object"), &kind, &name); err != nil {
		t.Fatal(err)
	}
	return kind, name
}

// primaryIsLost says whether the instance that reigns has no data any more, or
// not for long: only a person can bring the cluster back.
func primaryIsLost(w *world) bool {
	o := w.observe()
	id, _ := o.systemID()
	volume := w.volume(o.primaryName())
	if id == "" {
		return false
	}
	if volume == nil || volume.DeletionTimestamp != nil || w.data[volume.UID] == nil {
		return true
	}
	wal := w.volume(specs.WALVolumeName(o.primaryName()))
	return w.data[volume.UID].wal != "" && (wal == nil || wal.DeletionTimestamp != nil || w.data[volume.UID].wal != wal.UID)
}
