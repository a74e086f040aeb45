package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/golden"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// analyseCase is what a pass may find.
type analyseCase struct {
	why    string
	change func(w *world)
	// failed are the actions that fail, by their text: those that the API server
	// refuses, in its words, or with an object of somebody else in the way.
	failed   map[string]error
	inTheWay bool
}

// analyseCases each change a cluster of three that has settled;
// testdata/analyse.txt has what a pass then plans and reports. Those of backups are
// in backupCases, those of restores in place in rollbackCases, those of copies in
// cloneCases, those of proofs in verifyCases, and those of people's own certificates in
// certificateCases.
var analyseCases = []analyseCase{
	{why: "a new cluster: everything is made at once", change: func(w *world) { *w = *newWorld(3) }},
	{why: "a settled cluster: nothing is done, whatever webhooks made of the pods", change: func(*world) {}},
	{why: "a settled cluster of one", change: func(w *world) { *w = *settledWorld(1) }},
	{why: "a replica's server is being restarted, which its probes have not noticed", change: func(w *world) {
		w.say("shop-3", func(s *instanceapi.State) { s.Phase = instanceapi.PhaseStopping })
	}},
	{why: "E-05: clients have taken all of the primary's connections", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) { s.ConnectionsTaken = true })
	}},
	{why: "E-05: a superuser has, so that the agent gets none", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) { s.ConnectionsTaken, s.Ready = true, false })
	}},
	{why: "a Service is being deleted, and somebody's finalizer keeps it", change: func(w *world) {
		rw := w.objects["Service"]["shop-rw"].DeepCopyObject().(object)
		rw.SetFinalizers([]string{"example.com/wait"})
		rw.SetDeletionTimestamp(&metav1.Time{Time: w.now})
		w.store(rw)
	}},

	// The way up.
	{why: "no node has room: the scheduler's words are in the status", change: func(w *world) {
		*w = *newWorld(3)
		w.full = true
		w.turn()
	}},
	{why: "containers are being started", change: func(w *world) {
		*w = *newWorld(3)
		w.turn()
	}},
	{why: "an image can't be pulled", change: func(w *world) {
		*w = *newWorld(1)
		w.turn()
		w.waiting("shop-1", "ImagePullBackOff", `Back-off pulling image "docker.io/library/postgres:17"`)
	}},
	{why: "instance 1 makes the database, the others wait for it", change: func(w *world) {
		w.start(3)
		w.say("shop-1", func(s *instanceapi.State) { s.Phase, s.Message = instanceapi.PhaseBootstrapping, "running initdb" })
		for _, name := range []string{"shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Phase, s.Message = instanceapi.PhaseWaiting, "for the primary" })
		}
	}},
	{why: "the database can't be made", change: func(w *world) {
		w.start(1)
		w.say("shop-1", func(s *instanceapi.State) {
			s.Phase, s.Message = instanceapi.PhaseFailed, `initdb: error: invalid locale name "nope"`
		})
	}},

	// Pods and volumes.
	{why: "a replica's pod is gone: it comes back on its volume", change: func(w *world) { delete(w.objects["Pod"], "shop-2") }},
	{why: "the primary's pod is gone: it comes back on its volume", change: func(w *world) { delete(w.objects["Pod"], "shop-1") }},
	{why: "the primary's pod has come back and does not reign yet", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.turn()
		w.turn()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Role, s.Ready, s.Phase, s.Message = instanceapi.RoleNone, false, instanceapi.PhaseStarting, "recovering"
		})
		w.reign("shop-1/the-pod-before")
	}},
	{why: "all pods are gone", change: func(w *world) { clear(w.objects["Pod"]) }},
	{why: "a pod is stopping", change: func(w *world) { w.remove("Pod", "shop-3") }},
	{why: "a pod was evicted: it is replaced", change: func(w *world) {
		change(w, "shop-3", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "the node was low on memory"
		})
	}},
	{why: "a pod ended well, which a server does not: it is replaced", change: func(w *world) {
		change(w, "shop-3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	}},
	{why: "a container crashes again and again", change: func(w *world) {
		w.waiting("shop-3", "CrashLoopBackOff", "back-off 20s restarting failed container")
	}},
	{why: "a replica's volume is being deleted: its pod makes way", change: func(w *world) { w.remove("PersistentVolumeClaim", "shop-2") }},
	{why: "the primary's volume is being deleted: it hands over first", change: func(w *world) { w.remove("PersistentVolumeClaim", "shop-1") }},
	{why: "a replica's volume and pod are gone: both are made anew", change: func(w *world) { w.lose("shop-2") }},
	{why: "a pod waits for a volume that is gone: it gets one", change: func(w *world) {
		w.lose("shop-2")
		w.store(w.born(specs.Pod(v1.WithDefaults(w.cluster), "shop-2", testImage)))
	}},
	{why: "a pod has a node, and its volume is gone before it started: it is replaced", change: func(w *world) {
		w.lose("shop-2")
		w.store(w.born(specs.Pod(v1.WithDefaults(w.cluster), "shop-2", testImage)))
		change(w, "shop-2", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
	}},
	{why: "the primary's volume and pod are gone", change: func(w *world) { w.lose("shop-1") }},
	{why: "the primary has come back on an empty volume: nothing is initialised", change: func(w *world) {
		w.lose("shop-1")
		w.turn()
		w.turn()
		w.turn()
	}},
	{why: "the only instance has come back on an empty volume (C-22)", change: func(w *world) {
		w.scale(1)
		w.settle()
		w.lose("shop-1")
		w.turn()
		w.turn()
		w.turn()
	}},
	{why: "the volume behind a claim was lost", change: func(w *world) {
		delete(w.objects["Pod"], "shop-2")
		change(w, "shop-2", func(v *corev1.PersistentVolumeClaim) { v.Status.Phase = corev1.ClaimLost })
	}},

	// Agents.
	{why: "the agent of a replica that serves can't be reached", change: func(w *world) { w.cut["shop-2"] = true }},
	{why: "the agent of the primary can't be reached, and its pod is not ready", change: func(w *world) {
		w.cut["shop-1"] = true
		w.probe("shop-1", false)
	}},
	{why: "another pod answers at a replica's address", change: func(w *world) {
		w.say("shop-2", func(s *instanceapi.State) { s.PodUID = "other" })
	}},
	{why: "a replica does not stream", change: func(w *world) {
		w.say("shop-3", func(s *instanceapi.State) { s.Streaming, s.Ready, s.Message = false, false, "replication slot is gone" })
	}},
	{why: "a replica is away, and the primary keeps WAL for it (C-10)", change: func(w *world) {
		w.say("shop-3", func(s *instanceapi.State) { s.Streaming, s.Ready, s.Message = false, false, "connection refused" })
		w.say("shop-1", func(s *instanceapi.State) {
			s.Slots = []instanceapi.Slot{{Name: "shop_2", Active: true, KeptBytes: 3 << 30}, {Name: "shop_3", KeptBytes: 700 << 20}}
		})
	}},
	{why: "a replica is cloning", change: func(w *world) {
		w.say("shop-3", func(s *instanceapi.State) {
			*s = instanceapi.State{Instance: s.Instance, PodUID: s.PodUID, Inspected: true, Phase: instanceapi.PhaseCloning, Message: "copying shop-1"}
		})
	}},
	{why: "the primary's disk is full", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.VolumeSize, s.VolumeFree = false, instanceapi.PhaseFailed, 1<<30, 1<<10
			s.Message = "could not write: No space left on device"
		})
	}},
	{why: "the primary's server can't start", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) {
			s.Ready, s.Role, s.Phase, s.Message = false, instanceapi.RoleNone, instanceapi.PhaseFailed, "could not open pg_control"
		})
	}},

	// The number of instances.
	{why: "more instances are asked for", change: func(w *world) { w.scale(5) }},
	{why: "fewer are asked for: the highest number goes, with its volume", change: func(w *world) { w.scale(2) }},
	{why: "fewer are asked for: one that does not serve goes first (B-15)", change: func(w *world) {
		w.say("shop-2", func(s *instanceapi.State) { s.Ready = false })
		w.scale(2)
	}},
	{why: "one is asked for, and the primary has the highest number: it stays (B-14)", change: func(w *world) {
		w.reign("shop-3/" + string(w.pod("shop-3").UID))
		w.say("shop-3", func(s *instanceapi.State) { s.Role = instanceapi.RolePrimary })
		w.say("shop-1", func(s *instanceapi.State) { s.Role = instanceapi.RoleReplica })
		w.scale(1)
	}},
	{why: "fewer are asked for while the primary does not serve: no copy goes", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) { s.Ready = false })
		w.scale(1)
	}},
	{why: "less than no instance is asked for, past the schema: one stays", change: func(w *world) { w.scale(-1) }},

	// A cluster that is stopped (B-13).
	{why: "the cluster is to stop: the agents are told first", change: func(w *world) { w.scale(0) }},
	{why: "the agents were told, and the primary does not know it yet", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.catchUp(allKinds...)
	}},
	{why: "the primary knows that the cluster stops: it goes first", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.agents()
	}},
	{why: "the primary does not answer: it is stopped all the same", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.cut["shop-1"] = true
	}},
	{why: "the primary answers, and never learns that the cluster stops", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.catchUp(allKinds...)
		w.pass()
		w.now = w.now.Add(stopPatience)
	}},
	{why: "the primary is stopping: the replicas wait", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.agents()
		w.remove("Pod", "shop-1")
	}},
	{why: "the primary has stopped: the replicas follow", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.agents()
		delete(w.objects["Pod"], "shop-1")
	}},
	{why: "nobody leads: all stop at once", change: func(w *world) {
		w.scale(0)
		w.pass()
		w.agents()
		w.reign("")
	}},
	{why: "the cluster is stopped: nothing is done, and requests are taken back", change: func(w *world) {
		w.scale(0)
		w.settle()
		w.annotate(v1.SwitchoverAnnotation, "shop-2")
		w.request("1")
	}},
	{why: "a stopped cluster is to have fewer instances: all come back, since any may be the one that leads", change: func(w *world) {
		w.scale(0)
		w.settle()
		w.scale(2)
	}},
	{why: "a volume was deleted while the cluster is stopped, and more instances are asked for", change: func(w *world) {
		w.scale(0)
		w.settle()
		w.remove("PersistentVolumeClaim", "shop-2")
		w.kubernetes()
		w.scale(3)
	}},
	{why: "a cluster is made stopped: there is nothing to keep", change: func(w *world) {
		*w = *newWorld(0)
	}},

	// Sidecars.
	{why: "a replica's sidecar crashes again and again: the replica serves", change: func(w *world) {
		w.breakSidecar("shop-3", corev1.PodRunning, "CrashLoopBackOff")
	}},
	{why: "the image of the primary's sidecar can't be pulled, so that its pod is Pending: the primary serves", change: func(w *world) {
		w.breakSidecar("shop-1", corev1.PodPending, "ImagePullBackOff")
	}},
	{why: "a sidecar does not run in the first instance that has restarted: the restart stops there", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2")
		w.breakSidecar("shop-2", corev1.PodRunning, "CrashLoopBackOff")
	}},
	{why: "a sidecar has run for a moment only: the next restart waits", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2")
		w.runSidecar("shop-2", sidecarTrial-time.Second)
	}},
	{why: "a sidecar has run for long enough: the restart goes on", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2")
		w.runSidecar("shop-2", sidecarTrial)
	}},
	{why: "a sidecar does not run in an instance that is to restart: it holds nobody up", change: func(w *world) {
		w.ask("2")
		w.breakSidecar("shop-3", corev1.PodRunning, "CrashLoopBackOff")
	}},
	{why: "a sidecar of a replica does not run: the primary hands over to nobody yet", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.breakSidecar("shop-3", corev1.PodRunning, "CrashLoopBackOff")
	}},
	{why: "a node is lost with a pod whose sidecar did not run", change: func(w *world) {
		w.breakSidecar("shop-3", corev1.PodRunning, "CrashLoopBackOff")
		w.cut["shop-3"] = true
	}},

	// A cluster that is paused.
	{why: "a paused cluster: edits, repairs and requests wait", change: func(w *world) {
		w.pause()
		w.scale(5)
		w.annotate(v1.SwitchoverAnnotation, "shop-2")
		delete(w.objects["Service"], "shop-ro")
		delete(w.objects["Pod"], "shop-3")
	}},
	{why: "a paused cluster that is as asked", change: func(w *world) { w.pause() }},
	{why: "a paused cluster whose primary is lost: the status goes on", change: func(w *world) {
		w.pause()
		w.say("shop-1", func(s *instanceapi.State) { s.Ready, s.Role = false, instanceapi.RoleNone })
	}},
	{why: "a paused cluster that is to stop", change: func(w *world) {
		w.pause()
		w.scale(0)
	}},

	// The spec.
	{why: "a spec that is refused makes nothing", change: func(w *world) {
		*w = *newWorld(3)
		w.set("listen_addresses", "*")
	}},
	{why: "a spec that is refused later leaves everything as it was", change: func(w *world) { w.set("listen_addresses", "*") }},
	{why: "a spec that is refused does not keep the cluster from growing", change: func(w *world) {
		w.set("listen_addresses", "*")
		w.scale(4)
	}},
	{why: "a spec is refused and the configuration is gone: what runs is looked after", change: func(w *world) {
		w.set("listen_addresses", "*")
		w.remove("ConfigMap", "shop-config")
		delete(w.objects["Pod"], "shop-2")
	}},
	{why: "a parameter changes: the agents get it", change: func(w *world) { w.set("work_mem", "8MB") }},
	{why: "a parameter has not reached every agent yet", change: func(w *world) {
		w.set("work_mem", "8MB")
		w.turn()
		w.say("shop-2", func(s *instanceapi.State) { s.ConfigHash = "of-before" })
	}},
	{why: "a parameter waits for a restart: one replica's server restarts in its place", change: func(w *world) {
		w.set("shared_buffers", "32MB")
		w.turn()
		w.pending(nil, nil, "shop-1", "shop-2", "shop-3")
	}},
	{why: "a parameter is set that waits for a restart: first everybody has to have it", change: func(w *world) {
		w.set("shared_buffers", "32MB")
		w.turn()
		w.pending(nil, nil, "shop-1", "shop-3")
		w.say("shop-2", func(s *instanceapi.State) { s.ConfigHash = "of-before" })
	}},
	{why: "a parameter waits for a restart of the primary alone: it hands over", change: func(w *world) {
		w.pending(nil, nil, "shop-1")
	}},
	{why: "a parameter waits for a restart of the primary, and a replica lags: it is waited for", change: func(w *world) {
		w.pending(nil, nil, "shop-1")
		w.say("shop-1", func(s *instanceapi.State) { s.WrittenLSN = "1/5000000" })
	}},
	{why: "a parameter waits for a restart of the primary, and an agent does not answer: it is waited for", change: func(w *world) {
		w.pending(nil, nil, "shop-1")
		w.cut["shop-3"] = true
	}},
	{why: "a parameter waits for a restart of one instance alone", change: func(w *world) {
		*w = *settledWorld(1)
		w.pending(nil, nil, "shop-1")
	}},
	{why: "the primary lowers what replicas need, too: its server restarts first (C-11)", change: func(w *world) {
		w.pending(nil, []string{"max_connections"}, "shop-1")
	}},
	{why: "the primary has lowered what replicas need, and they have not replayed that (C-11)", change: func(w *world) {
		for _, name := range []string{"shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Kept = []string{"max_connections"} })
		}
	}},
	{why: "the primary has more by ALTER SYSTEM: its replicas keep that, and nothing is to do", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) { s.SystemSet = []string{"max_connections"} })
		w.say("shop-2", func(s *instanceapi.State) { s.Kept = []string{"max_connections"} })
	}},
	{why: "the primary lowers one parameter and raises another that replicas need: they go first", change: func(w *world) {
		w.pending([]string{"max_wal_senders"}, []string{"max_connections"}, "shop-1")
		w.pending([]string{"max_wal_senders"}, nil, "shop-2", "shop-3")
	}},
	{why: "one server refuses at its start what others wait for: they go on without (C-13)", change: func(w *world) {
		w.pending(nil, nil, "shop-1", "shop-3")
		w.say("shop-2", func(s *instanceapi.State) { s.ConfigError = `the server ended: FATAL: could not access file "nope"` })
	}},
	{why: "a parameter that ALTER SYSTEM has set waits for a restart", change: func(w *world) {
		w.say("shop-2", func(s *instanceapi.State) { s.PendingSystem = []string{"max_connections"} })
	}},
	{why: "the server refuses the configuration", change: func(w *world) {
		for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.ConfigError = `unrecognized configuration parameter "nope"` })
		}
	}},
	{why: "the template changes: one replica restarts", change: func(w *world) { w.ask("2") }},
	{why: "the template changes: a pod that finds no node is replaced", change: func(w *world) {
		w.lose("shop-2")
		w.full = true
		w.turn()
		w.ask("2")
	}},
	{why: "the template changes: a server that can't start gets a new pod", change: func(w *world) {
		w.say("shop-3", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.Message = false, instanceapi.PhaseFailed, "out of memory"
		})
		w.ask("2")
	}},
	{why: "the template changes under a spec that is refused: nothing restarts", change: func(w *world) {
		w.ask("2")
		w.set("listen_addresses", "*")
	}},
	{why: "the template changed, and the first replica does not come up: the others wait (B-16)", change: func(w *world) {
		w.ask("2")
		w.full = true
		for range 3 {
			w.turn()
		}
	}},
	{why: "the template changed back: the replica that does not come up is replaced (B-16)", change: func(w *world) {
		w.ask("2")
		w.full = true
		for range 3 {
			w.turn()
		}
		w.edit(func(s *v1.PostgresClusterSpec) { s.Resources = v1.ResourceRequirements{} })
	}},
	{why: "the template changed and the replicas have restarted: now the primary hands over", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
	}},
	{why: "the template changed back: a replica that runs and does not stream is replaced (B-16)", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2")
		w.say("shop-2", func(s *instanceapi.State) { s.Ready, s.Streaming, s.Message = false, false, "waiting for the primary" })
		w.edit(func(s *v1.PostgresClusterSpec) { s.Resources = v1.ResourceRequirements{} })
	}},
	{why: "the template changes while a switchover is under way: nothing restarts", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-2")
		w.ask("2")
	}},
	{why: "a restart is asked for: one replica goes first", change: func(w *world) { w.request("now") }},
	{why: "a restart is asked for while a replica does not stream: it goes first, since nobody misses it", change: func(w *world) {
		w.request("now")
		w.say("shop-3", func(s *instanceapi.State) { s.Ready = false })
	}},
	{why: "a restart is asked for, and a server can't start: it goes first", change: func(w *world) {
		w.request("now")
		w.say("shop-3", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.Message = false, instanceapi.PhaseFailed, "out of memory"
		})
	}},
	{why: "a restart of one instance is asked for", change: func(w *world) {
		*w = *settledWorld(1)
		w.request("now")
	}},
	{why: "every instance has restarted as asked", change: func(w *world) {
		w.request("now")
		w.restartedAll("shop-1", "shop-2", "shop-3")
	}},
	{why: "the primary has given the Lease up a moment ago: its pod stays until another reigns and it follows", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.reign("")
		w.say("shop-1", func(s *instanceapi.State) {
			s.Role, s.Phase, s.Message = instanceapi.RoleNone, instanceapi.PhaseWaiting, "it gives the Lease up"
		})
	}},
	{why: "the primary has handed over to restart: it does so as a replica", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.turnUntilPrimaryIs("shop-2")
	}},
	{why: "the primary does not hand over: it restarts in its place", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.operate()
		w.say("shop-1", func(s *instanceapi.State) { s.Request = "no replica has caught up" })
		w.now = w.now.Add(refusalPatience)
	}},
	{why: "the primary has tried to hand over and leads on: it restarts in its place", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.operate()
		w.record(func(r *election.Record) { r.Term++ })
	}},
	{why: "a restart in a cluster whose replica does not stream: the primary waits", change: func(w *world) {
		w.ask("2")
		w.restartedAll("shop-2", "shop-3")
		w.say("shop-3", func(s *instanceapi.State) { s.Ready, s.Streaming = false, false })
	}},

	// Roles and databases.
	{why: "E-12: roles and databases are declared: logins are made, the agents may read them and are told", change: func(w *world) {
		w.edit(declareSome)
	}},
	{why: "roles and databases are declared, and the primary is yet to come to them", change: func(w *world) {
		w.edit(declareSome)
		w.operate()
	}},
	{why: "roles and databases are as declared", change: func(w *world) { w.settleWith(declareSome) }},
	{why: "the server refuses a role and a database: each is told with the server's words", change: func(w *world) {
		w.settleWith(declareSome, func(s *v1.PostgresClusterSpec) {
			s.Roles, s.Databases = append(s.Roles, v1.RoleSpec{Name: "bad"}), append(s.Databases, v1.DatabaseSpec{Name: "bad-too", Owner: "nowhere"})
		})
	}},
	{why: "roles as declared, and nobody can say whether they still are: they count as they did", change: func(w *world) {
		w.settleWith(declareSome)
		w.cut["shop-1"] = true
	}},
	{why: "another role is declared, and nobody can say how far the primary is", change: func(w *world) {
		w.settleWith(declareSome)
		w.cut["shop-1"] = true
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles = append(s.Roles, v1.RoleSpec{Name: "late"}) })
	}},
	{why: "the primary's agent knows nothing of roles", change: func(w *world) {
		w.settleWith(declareSome)
		w.say("shop-1", func(s *instanceapi.State) { s.Declared = nil })
	}},
	{why: "E-12: entries are removed: logins stay, and nobody reads them any more", change: func(w *world) {
		w.settleWith(declareSome)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles, s.Databases = nil, nil })
	}},
	{why: "logins of roles that are dropped, or get a password of the user's own, or none, go", change: func(w *world) {
		w.settleWith(func(s *v1.PostgresClusterSpec) {
			for _, name := range []string{"absent", "own", "none", "no-login"} {
				s.Roles = append(s.Roles, v1.RoleSpec{Name: name, Login: true})
			}
		})
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Roles[0].Ensure, s.Roles[1].PasswordSecret, s.Roles[2].DisablePassword, s.Roles[3].Login = v1.EnsureAbsent, &v1.SecretName{Name: "mine"}, true, false
		})
	}},
	{why: "E-02: a role's login was deleted, and another edited: both are put right", change: func(w *world) {
		w.settleWith(declareSome)
		w.remove("Secret", "shop-role-reporting")
		change(w, "shop-role-report-user-e0f7a001", func(s *corev1.Secret) { s.Data["host"] = []byte("elsewhere") })
	}},
	{why: "new passwords are asked for: the Secrets get the next ones beside those that are in force", change: func(w *world) {
		w.settleWith(declareSome)
		w.annotate(v1.RotateAnnotation, v1.RotateAll)
	}},
	{why: "a new password is asked for, and the server does not have it yet: the Secret waits", change: func(w *world) {
		w.settleWith(declareSome)
		w.annotate(v1.RotateAnnotation, "app")
		w.operate()
	}},
	{why: "the server has the next password: the Secret gets it in every form", change: func(w *world) {
		w.settleWith(declareSome)
		w.next("shop-app", "app")
	}},
	{why: "the server has the next password, and the cluster is paused: what was begun is ended", change: func(w *world) {
		w.settleWith(declareSome)
		w.next("shop-app", "")
		w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = true })
	}},
	{why: "the password is exchanged as asked: the request goes", change: func(w *world) {
		w.settleWith(declareSome)
		w.annotate(v1.RotateAnnotation, "app")
		change(w, "shop-app", func(s *corev1.Secret) { s.Annotations = map[string]string{specs.RotationAskedAnnotation: "app"} })
	}},
	{why: "no request for new passwords is seen any more: the Secret forgets it", change: func(w *world) {
		w.settleWith(declareSome)
		change(w, "shop-app", func(s *corev1.Secret) { s.Annotations = map[string]string{specs.RotationAskedAnnotation: "app"} })
	}},
	{why: "a new password is asked for while there is no primary: it waits", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.annotate(v1.RotateAnnotation, "app")
	}},
	{why: "a new password is asked for, of a role with a Secret of the user's own: refused", change: func(w *world) {
		w.settleWith(declareSome)
		w.annotate(v1.RotateAnnotation, "theirs")
	}},
	{why: "a new password is asked for, of a role that has none: refused", change: func(w *world) {
		w.settleWith(declareSome)
		w.annotate(v1.RotateAnnotation, "readers")
	}},
	{why: "a new password is asked for, of a role that shows a certificate: refused", change: func(w *world) {
		w.settleWith(func(s *v1.PostgresClusterSpec) {
			s.Roles = []v1.RoleSpec{{Name: "reporting", Login: true, ClientCertificate: true}}
		})
		w.annotate(v1.RotateAnnotation, "reporting")
	}},
	{why: "a role gets a certificate while its password is being exchanged: the exchange ends with the password", change: func(w *world) {
		w.settleWith(declareSome)
		w.next("shop-role-reporting", "")
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[0].ClientCertificate = true })
	}},
	{why: "a new password is asked for in a cluster that is stopped: refused", change: func(w *world) {
		w.annotate(v1.RotateAnnotation, "app")
		w.edit(func(s *v1.PostgresClusterSpec) { s.Instances = ptr.To[int32](0) })
	}},
	{why: "a schedule for new passwords is new: its next time is in the status, and nothing is made", change: func(w *world) { w.edit(rotateMonthly) }},
	{why: "a new password is due", change: func(w *world) {
		w.settleWith(rotateMonthly)
		w.now = time.Date(2026, 12, 1, 3, 0, 5, 0, time.UTC)
	}},
	{why: "a new password that is due has been begun: the status tells of the next time", change: func(w *world) {
		w.settleWith(rotateMonthly)
		w.now = time.Date(2026, 12, 1, 3, 0, 5, 0, time.UTC)
		w.operate()
		w.next("shop-app", "")
	}},
	{why: "a new password with a grace time is asked for: the Secret gets the next login beside the one that is in force", change: func(w *world) {
		w.settleWith(declareGrace)
		w.annotate(v1.RotateAnnotation, "loader")
	}},
	{why: "the server lets the next login in: it takes the place of the one before, which is beside it for the grace time", change: func(w *world) {
		w.settleWith(declareGrace)
		change(w, graceSecret, func(s *corev1.Secret) {
			s.Data[instanceapi.OtherUsernameKey], s.Data[instanceapi.OtherPasswordKey] = []byte("loader_1"), []byte("next")
		})
		w.agents()
	}},
	{why: "a grace time is over: the login before is valid no more", change: func(w *world) {
		w.settleWith(declareGrace)
		w.annotate(v1.RotateAnnotation, "loader")
		w.settle()
		w.passes(2 * time.Hour)
	}},
	{why: "new passwords at times that never come are refused by their fields", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Roles = []v1.RoleSpec{{Name: "a", Login: true, Rotation: &v1.RotationSpec{Cron: "0 0 30 2 *"}}, {Name: "b", Login: true, Rotation: &v1.RotationSpec{Cron: "0 3 * * *", TimeZone: "Mars/Olympus"}}}
		})
	}},
	{why: "E-04: the owner gets a Secret of the user's own: the operator's tells everything but the password", change: func(w *world) {
		w.settleWith(declareSome)
		w.edit(func(s *v1.PostgresClusterSpec) { s.Roles[5].PasswordSecret = &v1.SecretName{Name: "mine"} })
	}},
	{why: "a role is declared that can't be: the roles before stay", change: func(w *world) {
		w.settleWith(declareSome)
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Roles[5].Login, s.Databases[1].Ensure = false, v1.EnsureAbsent
			s.Roles = append(s.Roles, v1.RoleSpec{Name: "another"})
		})
	}},
	{why: "a new cluster with roles", change: func(w *world) {
		*w = *newWorld(1)
		w.edit(declareSome)
	}},
	{why: "E-04: a Secret of somebody else has the name of a role's login: it stays", change: func(w *world) { w.edit(declareSome) },
		inTheWay: true, failed: map[string]error{"create Secret shop-role-reporting": conflict(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-role-reporting"}})}},

	// Failover.
	{why: "the primary is gone, and its replicas elect", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.unchanged = 11 * time.Second
	}},
	{why: "another instance took over", change: func(w *world) {
		w.ended = EndedReign{Instance: "shop-1", Renewed: w.now.Add(-10200 * time.Millisecond)}
		w.crown(w.pod("shop-2"))
		w.say("shop-1", func(s *instanceapi.State) {
			*s = instanceapi.State{Instance: s.Instance, PodUID: s.PodUID, Inspected: true, HasData: true, Phase: instanceapi.PhaseStarting}
		})
	}},
	{why: "another instance took over, and the rw Service does not lead to it yet: the labels stay", change: func(w *world) {
		w.crown(w.pod("shop-2"))
		w.serveInSlice(w.pod("shop-1"))
		w.say("shop-1", func(s *instanceapi.State) { s.Role = instanceapi.RoleReplica })
	}},
	{why: "another instance took over while no operator ran", change: func(w *world) {
		w.crown(w.pod("shop-3"))
		w.turn()
	}},
	{why: "the Lease was released, and nobody has it yet: the labels stay", change: func(w *world) {
		w.reign("")
		w.say("shop-1", func(s *instanceapi.State) {
			s.Role, s.Ready, s.Phase = instanceapi.RoleNone, false, instanceapi.PhaseStopping
		})
	}},
	{why: "the primary's node is lost: its pod looks ready, and the Lease has expired", change: func(w *world) {
		w.cut["shop-1"] = true
		w.unchanged = 10 * time.Second
	}},
	{why: "the primary's agent can't be reached, and renews the Lease", change: func(w *world) {
		w.cut["shop-1"] = true
		w.unchanged = 2 * time.Second
	}},
	{why: "the primary is gone, and no replica could take over", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.record(func(r *election.Record) { r.Members, r.Votes = nil, 0 })
		w.unchanged = 11 * time.Second
		w.say("shop-2", func(s *instanceapi.State) {
			s.ReceivedLSN, s.Election = "0/5000000", "it is no member: it was 200 MiB behind"
		})
		w.say("shop-3", func(s *instanceapi.State) {
			s.ReceivedLSN, s.Election = "0/6000000", "it is no member: it was 180 MiB behind"
		})
	}},
	{why: "the primary and a replica whose vote is needed are gone", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		w.record(func(r *election.Record) { r.Votes = 2 })
		delete(w.objects["Pod"], "shop-1")
		w.lose("shop-3")
		w.unchanged = 11 * time.Second
		w.say("shop-2", func(s *instanceapi.State) { s.Election = "waiting for the vote of shop-3" })
	}},
	{why: "an election takes too long", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.unchanged = 30 * time.Second
		w.say("shop-2", func(s *instanceapi.State) { s.Election = "shop-3 refuses its vote: it hears from the primary" })
	}},
	{why: "an election takes too long, as an operator before has said", change: func(w *world) {
		delete(w.objects["Pod"], "shop-1")
		w.unchanged = 30 * time.Second
		w.operate()
		w.unchanged = 0
		w.reign("")
	}},
	{why: "replicas stream, and are too far behind to take over", change: func(w *world) {
		w.record(func(r *election.Record) { r.Members, r.Votes = nil, 0 })
		w.say("shop-1", func(s *instanceapi.State) { s.Standbys[0].LagBytes, s.Standbys[1].LagBytes = 200<<20, 5<<30 })
	}},
	{why: "mode sync: commits wait for replicas that are gone (C-29)", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		for _, name := range []string{"shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Ready, s.Streaming = false, false })
		}
		w.say("shop-1", func(s *instanceapi.State) { s.Standbys = nil })
	}},
	{why: "mode sync: the primary goes on alone, as preferred", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) {
			s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync, Durability: v1.DurabilityPreferred}
		})
		for _, name := range []string{"shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Ready, s.Streaming = false, false })
		}
		w.say("shop-1", func(s *instanceapi.State) { s.Standbys = nil })
	}},
	{why: "mode sync: an instance goes when no election needs its vote any more", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		w.scale(2)
		w.operate()
	}},
	{why: "mode sync: no election needs the vote of an instance that is to go", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		w.scale(2)
		w.operate()
		w.agents()
	}},
	{why: "mode sync with fsync off: what ran before runs on", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		w.set("fsync", "off")
	}},

	// Requests.
	{why: "a switchover is asked for", change: func(w *world) { w.annotate(v1.SwitchoverAnnotation, "shop-3") }},
	{why: "a switchover is under way", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
	}},
	{why: "a switchover is under way, and fewer instances are asked for: its target stays", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.scale(2)
	}},
	{why: "a switchover is done", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.turnUntilPrimaryIs("shop-3")
		w.ended = EndedReign{Instance: "shop-1", Renewed: w.lease().Spec.AcquireTime.Add(-420 * time.Millisecond)}
	}},
	{why: "a switchover was done, and the request is gone", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.turnUntilPrimaryIs("shop-3")
		w.turn()
	}},
	{why: "the primary can't hand over, and says why", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.say("shop-1", func(s *instanceapi.State) { s.Request = "shop-3 is 3 GiB behind" })
		w.now = w.now.Add(refusalPatience)
	}},
	{why: "the primary has just been asked, and still speaks of what was before", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.say("shop-1", func(s *instanceapi.State) { s.Request = "shop-2 is 3 GiB behind" })
	}},
	{why: "the primary does not begin to hand over", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.now = w.now.Add(switchoverPatience)
	}},
	{why: "the primary has taken the lead back", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.record(func(r *election.Record) { r.Term += 2 })
		w.say("shop-1", func(s *instanceapi.State) { s.Request = "shop-3 did not take over within 5s" })
	}},
	{why: "another instance took over than was asked for", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.crown(w.pod("shop-2"))
	}},
	{why: "a switchover is taken back before it has begun", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.operate()
		w.cluster = w.cluster.DeepCopy()
		w.cluster.Annotations = nil
	}},
	{why: "a switchover to an instance that is not there", change: func(w *world) { w.annotate(v1.SwitchoverAnnotation, "shop-7") }},
	{why: "a switchover to the primary", change: func(w *world) { w.annotate(v1.SwitchoverAnnotation, "shop-1") }},
	{why: "a switchover to a replica that does not stream", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.say("shop-3", func(s *instanceapi.State) { s.Ready, s.Streaming, s.Message = false, false, "replication slot is gone" })
	}},
	{why: "a switchover is asked for while there is no primary", change: func(w *world) {
		w.annotate(v1.SwitchoverAnnotation, "shop-3")
		w.reign("")
	}},
	{why: "a replica is to be cloned anew", change: func(w *world) { w.annotate(v1.RecloneAnnotation, "shop-3") }},
	{why: "a replica is being cloned anew", change: func(w *world) {
		w.annotate(v1.RecloneAnnotation, "shop-3")
		w.operate()
		w.say("shop-3", func(s *instanceapi.State) {
			*s = instanceapi.State{Instance: s.Instance, PodUID: s.PodUID, Inspected: true, Phase: instanceapi.PhaseCloning, Message: "copying shop-1"}
		})
	}},
	{why: "a replica was cloned anew", change: func(w *world) {
		w.annotate(v1.RecloneAnnotation, "shop-3")
		w.operate()
		w.agents()
	}},
	{why: "the primary is to be cloned anew", change: func(w *world) { w.annotate(v1.RecloneAnnotation, "shop-1") }},
	{why: "a replica is to be cloned anew while there is no primary", change: func(w *world) {
		w.annotate(v1.RecloneAnnotation, "shop-3")
		w.say("shop-1", func(s *instanceapi.State) { s.Ready, s.Role = false, instanceapi.RoleNone })
	}},
	{why: "a replica whose agent does not answer is to be cloned anew", change: func(w *world) {
		w.annotate(v1.RecloneAnnotation, "shop-3")
		w.cut["shop-3"] = true
	}},
	{why: "a promotion is forced", change: func(w *world) {
		w.annotate(v1.ForcePromoteAnnotation, "shop-2")
		delete(w.objects["Pod"], "shop-1")
		w.record(func(r *election.Record) { r.Members, r.Votes = nil, 0 })
		w.unchanged = time.Minute
	}},
	{why: "a promotion was forced", change: func(w *world) {
		w.annotate(v1.ForcePromoteAnnotation, "shop-2")
		delete(w.objects["Pod"], "shop-1")
		w.record(func(r *election.Record) { r.Members, r.Votes = nil, 0 })
		w.operate()
		w.agents()
	}},
	{why: "a promotion is forced while the primary serves", change: func(w *world) { w.annotate(v1.ForcePromoteAnnotation, "shop-2") }},
	{why: "a promotion was to be forced, and the primary has come back", change: func(w *world) {
		w.annotate(v1.ForcePromoteAnnotation, "shop-2")
		w.say("shop-1", func(s *instanceapi.State) { s.Ready = false })
		w.operate()
		w.say("shop-1", func(s *instanceapi.State) { s.Ready = true })
	}},

	// Nodes.
	{why: "the primary's node is cordoned: it hands over to a replica on another", change: func(w *world) {
		w.cordon("shop-1", true)
		w.cordon("shop-2", true)
	}},
	{why: "the primary's node is cordoned, and so are all others", change: func(w *world) {
		for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
			w.cordon(name, true)
		}
	}},
	{why: "the primary's node is cordoned, and it could not hand over", change: func(w *world) {
		w.cordon("shop-1", true)
		w.operate()
		w.now = w.now.Add(switchoverPatience)
	}},
	{why: "a replica's node is cordoned", change: func(w *world) { w.cordon("shop-2", true) }},

	{why: "a replica's node is gone, and its volume with it: the claim is marked", change: func(w *world) { w.loseNode("shop-2") }},
	{why: "the claim of a lost replica is marked: another instance takes its place", change: func(w *world) {
		w.loseNode("shop-2")
		w.operate()
	}},
	{why: "mode sync: a lost replica's vote is not waited for", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Replication = v1.ReplicationSpec{Mode: v1.ReplicationSync} })
		w.loseNode("shop-2")
		w.operate()
	}},
	{why: "a lost replica was replaced: its claim is kept, and the status names it", change: func(w *world) {
		w.loseNode("shop-2")
		w.settle()
	}},
	{why: "a lost replica was replaced, and volumes are to go with the cluster: so is the one that is kept", change: func(w *world) {
		w.loseNode("shop-2")
		w.settle()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Retain = v1.DeleteVolumes })
	}},
	{why: "a lost replica was replaced, and its node comes back: nothing changes", change: func(w *world) {
		w.loseNode("shop-2")
		w.settle()
		clear(w.lost)
	}},
	{why: "the mark is taken away from a claim after all other instances are gone: it is an instance again", change: func(w *world) {
		w.loseNode("shop-2")
		w.settle()
		clear(w.lost)
		for _, name := range []string{"shop-1", "shop-3", "shop-4"} {
			w.lose(name)
		}
		change(w, "shop-2", func(v *corev1.PersistentVolumeClaim) { delete(v.Annotations, specs.LostNodeAnnotation) })
	}},
	{why: "the nodes of two replicas are gone: one is replaced after the other", change: func(w *world) {
		w.loseNode("shop-2")
		w.loseNode("shop-3")
	}},
	{why: "the nodes of two replicas are gone: the second waits until the first has its data again", change: func(w *world) {
		w.loseNode("shop-2")
		w.loseNode("shop-3")
		w.operate()
	}},
	{why: "the primary's node is gone, and nobody has taken over: it is not replaced", change: func(w *world) {
		w.loseNode("shop-1")
		w.unchanged = time.Hour
	}},
	{why: "the primary's node is gone, and another has taken over: it is replaced", change: func(w *world) {
		w.crown(w.pod("shop-2"))
		w.agents()
		w.loseNode("shop-1")
		w.kubernetes()
	}},
	{why: "a replica's node is gone while the primary does not serve", change: func(w *world) {
		w.loseNode("shop-2")
		w.say("shop-1", func(s *instanceapi.State) { s.Ready = false })
	}},
	{why: "the node of the only instance is gone", change: func(w *world) {
		*w = *settledWorld(1)
		w.loseNode("shop-1")
	}},
	{why: "a cluster of the same name finds a claim that the one before did without: it is a volume like others", change: func(w *world) {
		w.loseNode("shop-2")
		w.settle()
		clear(w.lost)
		w.rebirth(2)
		w.settle()
	}},

	{why: "volumes are to grow", change: func(w *world) { w.grow("2Gi") }},
	{why: "the same size in other units is no change", change: func(w *world) { w.grow("1024Mi") }},
	{why: "volumes are to grow, and their class does not allow it", change: func(w *world) { w.grow("2Gi") },
		failed: map[string]error{
			"update PersistentVolumeClaim shop-1": errNoGrowth, "update PersistentVolumeClaim shop-2": errNoGrowth, "update PersistentVolumeClaim shop-3": errNoGrowth,
		}},
	{why: "growth that no volume began is taken back", change: func(w *world) {
		w.grow("2Gi")
		w.observe()
		w.grow("1Gi")
	}},
	{why: "volumes are larger than asked: they stay so", change: func(w *world) { w.grow("512Mi") }},
	{why: "another storage class is asked for: volumes keep theirs", change: func(w *world) { w.class("fast") }},
	{why: "another storage class is asked for: a new instance gets it", change: func(w *world) {
		w.class("fast")
		w.lose("shop-3")
	}},
	{why: "a storage class that does not exist", change: func(w *world) { w.unprovisioned("nope") }},
	{why: "a storage class that does not exist is corrected: the volumes are made anew", change: func(w *world) {
		w.unprovisioned("nope")
		w.class("standard")
	}},
	{why: "a storage class that does not exist is taken away: the volumes are made anew", change: func(w *world) {
		w.unprovisioned("nope")
		w.class("")
	}},
	{why: "the size is changed before a volume is provisioned: the volumes are made anew", change: func(w *world) {
		w.unprovisioned("")
		w.grow("512Mi")
	}},
	{why: "volumes are growing, and one can't", change: func(w *world) {
		w.grow("2Gi")
		w.turn()
		for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
			change(w, name, func(v *corev1.PersistentVolumeClaim) {
				v.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
			})
		}
		change(w, "shop-2", func(v *corev1.PersistentVolumeClaim) {
			v.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "the disk can't grow",
			}}
		})
	}},
	{why: "volumes are to grow, which their class does not allow, and to go with the cluster: the owner is written at once", change: func(w *world) {
		w.grow("2Gi")
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Retain = v1.DeleteVolumes })
	}},

	// WAL volumes.
	{why: "a cluster with WAL volumes has settled", change: func(w *world) { w.withWAL() }},
	{why: "WAL volumes are asked for: they are made, and nothing restarts before", change: func(w *world) { w.wal("512Mi", "") }},
	{why: "WAL volumes are there: the first replica restarts", change: func(w *world) {
		w.wal("512Mi", "")
		w.operate()
		w.turn()
	}},
	{why: "WAL volumes can't be made: nothing restarts", change: func(w *world) { w.wal("512Mi", "") },
		failed: map[string]error{
			"create PersistentVolumeClaim shop-1-wal": errNoGrowth, "create PersistentVolumeClaim shop-2-wal": errNoGrowth, "create PersistentVolumeClaim shop-3-wal": errNoGrowth,
		}},
	{why: "WAL volumes are taken back before one is provisioned", change: func(w *world) {
		w.wal("512Mi", "nope")
		w.operate()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.WAL = nil })
	}},
	{why: "WAL volumes are taken away after all, which only the operator could see: nothing restarts", change: func(w *world) {
		w.withWAL()
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.WAL = nil })
	}},
	{why: "A-24: WAL volumes are to grow, and their class does not allow it", change: func(w *world) {
		w.withWAL()
		w.wal("1Gi", "")
	}, failed: map[string]error{
		"update PersistentVolumeClaim shop-1-wal": errNoGrowth, "update PersistentVolumeClaim shop-2-wal": errNoGrowth, "update PersistentVolumeClaim shop-3-wal": errNoGrowth,
	}},
	{why: "A-24: one volume of each kind is refused to grow", change: func(w *world) {
		w.withWAL()
		w.grow("2Gi")
		w.wal("1Gi", "")
	}, failed: map[string]error{"update PersistentVolumeClaim shop-2": errNoGrowth, "update PersistentVolumeClaim shop-3-wal": errNoGrowth}},
	{why: "a WAL volume can't grow so far, in the driver's words", change: func(w *world) {
		w.withWAL()
		w.wal("1Gi", "")
		w.operate()
		change(w, "shop-2-wal", func(v *corev1.PersistentVolumeClaim) {
			v.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, Message: "the disk can't grow",
			}}
		})
	}},
	{why: "A-25: another class of WAL volumes is asked for: they keep theirs", change: func(w *world) {
		w.withWAL()
		w.wal("512Mi", "fast")
	}},
	{why: "A-26: a class of WAL volumes that does not exist is corrected", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "nope")
		w.full = true
		w.turn()
		w.wal("512Mi", "fast")
	}},
	{why: "the WAL volume of a replica is being deleted: its pod makes way", change: func(w *world) {
		w.withWAL()
		w.remove("PersistentVolumeClaim", "shop-2-wal")
	}},
	{why: "the WAL volume of the primary is being deleted: it hands over first", change: func(w *world) {
		w.withWAL()
		w.remove("PersistentVolumeClaim", "shop-1-wal")
	}},
	{why: "the data volume of a replica was deleted: its WAL volume goes with it", change: func(w *world) {
		w.withWAL()
		delete(w.objects["Pod"], "shop-2")
		w.remove("PersistentVolumeClaim", "shop-2")
		w.kubernetes()
	}},
	{why: "the data volume of the only instance was deleted: its WAL volume stays", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "")
		w.settle()
		w.now = w.now.Add(time.Hour)
		delete(w.objects["Pod"], "shop-1")
		w.remove("PersistentVolumeClaim", "shop-1")
		w.kubernetes()
	}},
	{why: "the primary has come back with another WAL volume: its words are in the status", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "")
		w.settle()
		delete(w.objects["Pod"], "shop-1")
		w.remove("PersistentVolumeClaim", "shop-1-wal")
		for range 4 {
			w.turn()
		}
	}},
	{why: "fewer are asked for: the highest number goes, with both volumes", change: func(w *world) {
		w.withWAL()
		w.scale(2)
	}},
	{why: "a node is gone, and both volumes of a replica with it: both are kept", change: func(w *world) {
		w.withWAL()
		w.loseNode("shop-2")
	}},
	{why: "an earlier cluster left volumes of both kinds: they are taken over", change: func(w *world) {
		w.withWAL()
		w.rebirth(3)
		w.wal("512Mi", "")
	}},
	{why: "an earlier cluster left a WAL volume alone: it is left alone, and its number, too", change: func(w *world) {
		w.withWAL()
		w.rebirth(1)
		for _, name := range []string{"shop-1", "shop-2", "shop-3", "shop-2-wal", "shop-3-wal"} {
			delete(w.objects["PersistentVolumeClaim"], name)
		}
		w.wal("512Mi", "")
	}},
	{why: "C-08: the WAL volume of the only instance is full", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "")
		w.settle()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.WALVolumeSize, s.WALVolumeFree = false, instanceapi.PhaseFailed, 1<<29, 1<<10
			s.Message = "could not write: No space left on device"
		})
		w.probe("shop-1", false)
	}},
	{why: "C-08: the WAL volume has no room for another segment, and the server has ended", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "")
		w.settle()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.WALVolumeSize, s.WALVolumeFree = false, instanceapi.PhaseFailed, 1<<29, 12<<20
			s.Message = "the server ended: PANIC: could not write: No space left on device"
		})
		w.probe("shop-1", false)
	}},
	{why: "C-08: volumes of a cluster that is down for want of space grow", change: func(w *world) {
		*w = *newWorld(1)
		w.wal("512Mi", "")
		w.settle()
		w.say("shop-1", func(s *instanceapi.State) {
			s.Ready, s.Phase, s.WALVolumeSize, s.WALVolumeFree = false, instanceapi.PhaseFailed, 1<<29, 1<<10
			s.Message = "could not write: No space left on device"
		})
		w.probe("shop-1", false)
		w.wal("1Gi", "")
	}},
	{why: "the data volume of a primary that runs is full: its state says so", change: func(w *world) {
		w.say("shop-1", func(s *instanceapi.State) { s.VolumeSize, s.VolumeFree = 1<<30, 1<<10 })
	}},

	// Moves to other volumes.
	{why: "A-25: a replica is to be cloned where the class has changed: the agent is told to wait for new volumes", change: func(w *world) {
		w.class("fast")
		w.annotate(v1.RecloneAnnotation, "shop-2")
	}},
	{why: "A-25: the agent was told: the volume goes", change: func(w *world) {
		w.class("fast")
		w.annotate(v1.RecloneAnnotation, "shop-2")
		w.operate()
	}},
	{why: "A-25: the replica has cloned on a volume of the new class", change: func(w *world) {
		w.class("fast")
		w.annotate(v1.RecloneAnnotation, "shop-2")
		w.operate()
		for range 6 {
			w.turn()
		}
	}},
	{why: "volumes are to go with the cluster", change: func(w *world) {
		w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Retain = v1.DeleteVolumes })
	}},

	// Hand edits.
	{why: "everything but pods and volumes was deleted by hand", change: func(w *world) {
		for _, kind := range []string{"ConfigMap", "EndpointSlice", "Role", "RoleBinding", "Service", "ServiceAccount"} {
			clear(w.objects[kind])
		}
	}},
	{why: "the login was deleted by hand", change: func(w *world) { w.remove("Secret", "shop-app") }},
	{why: "the authority was deleted by hand: a new one is made, and nobody is told yet", change: func(w *world) { w.remove("Secret", "shop-ca") }},
	{why: "the authority was replaced: it is trusted beside the old one", change: func(w *world) { w.replaceCA() }},
	{why: "the authority was replaced: instances are told to trust both", change: func(w *world) {
		w.replaceCA()
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "both authorities are trusted, and one instance has not heard of it: certificates stay", change: func(w *world) {
		w.replaceCA()
		w.turn()
		w.late["shop-3"] = true
		for range 10 {
			w.turn()
		}
	}},
	{why: "both authorities are trusted by all: the new one signs", change: func(w *world) {
		w.replaceCA()
		w.turnUntil(v1.ReasonAuthorityInForce)
	}},
	{why: "the new authority signs: certificates are made anew", change: func(w *world) {
		w.replaceCA()
		w.turnUntil(v1.ReasonAuthorityInForce)
		w.pass()
	}},
	{why: "all certificates are of the new authority: the old one is not trusted any more", change: func(w *world) {
		w.replaceCA()
		w.turnUntil(v1.ReasonAuthorityRetired)
	}},
	{why: "the authority can't be read: it is put back", change: func(w *world) { w.damage("shop-ca", specs.KeyKey) }},
	{why: "the authority ends within two years: a new one is made", change: func(w *world) {
		w.now = w.now.Add(9 * 365 * 24 * time.Hour)
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "certificates end soon: the operator's own is renewed", change: func(w *world) { w.now = w.now.Add(70 * 24 * time.Hour) }},
	{why: "certificates end soon: the instances' are renewed", change: func(w *world) {
		w.now = w.now.Add(70 * 24 * time.Hour)
		w.catchUp(allKinds...)
		w.pass()
	}},
	{why: "an instance's certificates were deleted or damaged by hand", change: func(w *world) {
		w.remove("Secret", "shop-1-tls")
		w.damage("shop-2-tls", specs.ReplicationKeyKey)
		w.damage("shop-3-tls", specs.CAKey)
	}},
	{why: "the Lease was deleted by hand", change: func(w *world) { w.remove("Lease", "shop") }},
	{why: "the record of the reign can't be read", change: func(w *world) {
		change(w, "shop", func(l *coordinationv1.Lease) { l.Annotations[election.RecordAnnotation] = "{" })
	}},
	{why: "objects were edited by hand: they are put right", change: func(w *world) {
		change(w, "shop-rw", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "mine"} })
		change(w, "shop-config", func(c *corev1.ConfigMap) { c.Data[instanceapi.HBAKey] = "local all all trust" })
		change(w, "shop-instance", func(r *rbacv1.Role) { r.Rules = nil })
		change(w, "shop-instance", func(b *rbacv1.RoleBinding) { b.Subjects = nil })
		change(w, "shop-app", func(s *corev1.Secret) { s.Data["password"] = []byte("changed") })
		change(w, "shop-rw", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) })
		change(w, "shop-2", func(p *corev1.Pod) { delete(p.Labels, specs.RoleLabel) })
	}},

	{why: "the headless Service was given an address: it is made anew", change: func(w *world) {
		change(w, "shop-pods", func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.7" })
	}},
	{why: "more instances are asked for than can stream", change: func(w *world) {
		w.set("max_wal_senders", "12")
		w.scale(13)
	}},
	{why: "two objects of others are in the way: both are named", change: func(w *world) {
		w.remove("Service", "shop-rw")
		w.remove("Service", "shop-ro")
	}, inTheWay: true, failed: map[string]error{
		"create Service shop-rw": conflict(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop-rw"}}),
		"create Service shop-ro": conflict(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop-ro"}}),
	}},

	// Volumes of an earlier cluster.
	{why: "the volumes of an earlier cluster are there, and nobody knows yet what they hold", change: func(w *world) { w.rebirth(3) }},
	{why: "the volumes of an earlier cluster hold its database: it is taken over", change: func(w *world) {
		w.rebirth(3)
		w.turn()
		w.turn()
	}},
	{why: "an earlier cluster left more volumes than are asked for: the others are left alone", change: func(w *world) { w.rebirth(1) }},
	{why: "the volumes of an earlier cluster hold different databases", change: func(w *world) {
		w.rebirth(3)
		w.turnWithoutAgents()
		w.turnWithoutAgents()
		for n, name := range []string{"shop-1", "shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) {
				s.Phase, s.Message = instanceapi.PhaseWaiting, "for a primary"
				s.Inspected, s.HasData, s.SystemID = true, true, fmt.Sprint("743", n/2)
			})
		}
	}},
	{why: "the volumes of an earlier cluster are empty", change: func(w *world) {
		w.rebirth(3)
		w.turnWithoutAgents()
		w.turnWithoutAgents()
		for _, name := range []string{"shop-1", "shop-2", "shop-3"} {
			w.say(name, func(s *instanceapi.State) { s.Phase, s.Inspected = instanceapi.PhaseWaiting, true })
		}
	}},

	// What the API server refuses.
	{why: "a quota leaves no room for a pod", change: func(w *world) { delete(w.objects["Pod"], "shop-2") },
		failed: map[string]error{"create Pod shop-2": errors.New(`pods "shop-2" is forbidden: exceeded quota: small`)}},
	{why: "somebody else's volume has a new cluster's name (B-03)", change: func(w *world) { *w = *newWorld(1) },
		inTheWay: true, failed: map[string]error{"create PersistentVolumeClaim shop-1": conflict(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shop-1"}})}},
	{why: "somebody else's Service has the name", change: func(w *world) { w.remove("Service", "shop-rw") },
		inTheWay: true, failed: map[string]error{"create Service shop-rw": conflict(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop-rw"}})}},
}

var errNoGrowth = errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")

func TestAnalyse(t *testing.T) {
	pure(t)
	var all strings.Builder
	seen := map[string]bool{}
	for _, c := range slices.Concat(analyseCases, backupCases, rollbackCases, cloneCases, verifyCases, certificateCases) {
		if seen[c.why] {
			t.Errorf("two cases %q", c.why)
		}
		seen[c.why] = true
		w := settledWorld(3)
		c.change(w)
		w.catchUp(allKinds...)
		o := w.observe()
		before, lists := snapshot(w), o
		p := Analyse(o)
		var failures []Failure
		for _, a := range p.Actions {
			if err := c.failed[a.String()]; err != nil {
				failure := refused(a, err)
				if c.inTheWay {
					failure.Reason = v1.ReasonNameConflict
				}
				failures = append(failures, *failure)
			}
		}
		status := Status(o, p, failures)
		if diff := cmp.Diff(before, snapshot(w)); diff != "" {
			t.Errorf("%s: Analyse or Status changed what was observed:\n%s", c.why, diff)
		}
		if len(lists.Instances) != len(o.Instances) {
			t.Errorf("%s: Analyse changed the observation", c.why)
		}
		fmt.Fprintf(&all, "# %s\n%s\n", c.why, describe(w, o, p, status))
	}
	golden.Text(t, "analyse.txt", all.String())
}

// turn is one of everybody's.
func (w *world) turn() {
	w.turnWithoutAgents()
	w.agents()
}

// turnUntil lets everybody take turns until the next pass plans an action with
// that reason.
func (w *world) turnUntil(reason string) {
	isIt := func(a Action) bool { return a.Reason == reason }
	for !slices.ContainsFunc(Analyse(w.observe()).Actions, isIt) {
		w.turn()
		w.catchUp(allKinds...)
	}
}

// operate is a pass of the operator's.
func (w *world) operate() {
	w.catchUp(allKinds...)
	w.pass()
}

// turnUntilPrimaryIs lets everybody take turns until the named instance reigns
// and says so, which the operator has not seen.
func (w *world) turnUntilPrimaryIs(name string) {
	for w.observe().primaryName() != name {
		w.operate()
		w.kubernetes()
		w.agents()
		w.now = w.now.Add(time.Second)
		w.catchUp(allKinds...)
	}
	w.agents()
	w.kubernetes()
}

func (w *world) turnWithoutAgents() {
	w.catchUp(allKinds...)
	w.pass()
	w.kubernetes()
	w.now = w.now.Add(time.Minute)
}

// start makes a new world whose containers run, and whose agents have not said
// anything yet.
func (w *world) start(instances int32) {
	*w = *newWorld(instances)
	for range 3 {
		w.turnWithoutAgents()
	}
}

func (w *world) say(name string, edit func(*instanceapi.State)) {
	pod := w.pod(name)
	s := w.states[pod.UID]
	s.Instance, s.PodUID = name, string(pod.UID)
	edit(&s)
	w.states[pod.UID] = s
	w.probe(name, s.Ready)
}

// reign makes the Lease holder's.
func (w *world) reign(holder string) {
	change(w, "shop", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To(holder) })
	if pod := w.pod(election.ParseHolder(holder).Instance); pod != nil {
		w.serveInSlice(pod)
	}
}

func (w *world) waiting(name, reason, message string) {
	change(w, name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  specs.PostgresContainer,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	})
	w.probe(name, false)
}

// breakSidecar keeps a sidecar from running: the pod is not ready, and its server's
// container is.
func (w *world) breakSidecar(name string, phase corev1.PodPhase, reason string) {
	w.sidecar(name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off"}})
	change(w, name, func(p *corev1.Pod) {
		p.Status.Phase = phase
		p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: containersNotReady}
	})
}

// runSidecar lets a sidecar have run for that long.
func (w *world) runSidecar(name string, since time.Duration) {
	w.sidecar(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now.Add(-since))}})
}

func (w *world) sidecar(name string, state corev1.ContainerState) {
	change(w, name, func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Ready = true
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses[:1], corev1.ContainerStatus{Name: "mesh", State: state, Ready: state.Running != nil})
	})
}

// lose takes an instance with its volume and what was on it.
func (w *world) lose(name string) {
	delete(w.data, w.volume(name).UID)
	delete(w.objects["Pod"], name)
	delete(w.objects["PersistentVolumeClaim"], name)
	delete(w.objects["PersistentVolumeClaim"], specs.WALVolumeName(name))
}

// wal asks for WAL volumes.
func (w *world) wal(size, class string) {
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Storage.WAL = &v1.WALStorageSpec{Size: resource.MustParse(size), Class: class}
	})
}

// withWAL is a settled cluster of three with WAL volumes.
func (w *world) withWAL() {
	*w = *newWorld(3)
	w.wal("512Mi", "")
	if _, settled := w.settle(); !settled {
		panic("the cluster did not come up")
	}
	w.now = w.now.Add(time.Hour)
}

func (w *world) scale(n int32) { w.edit(func(s *v1.PostgresClusterSpec) { s.Instances = &n }) }

func (w *world) pause() { w.edit(func(s *v1.PostgresClusterSpec) { s.Paused = true }) }

func (w *world) set(name, value string) {
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Postgres.Parameters = map[string]v1.ParameterValue{name: v1.NewParameter(value)}
	})
}

func (w *world) ask(cpu string) {
	w.edit(func(s *v1.PostgresClusterSpec) {
		s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	})
}

// pending lets servers say that parameters wait for a restart: those that are raised
// and lowered, or shared_buffers.
func (w *world) pending(raised, lowered []string, names ...string) {
	for _, name := range names {
		w.say(name, func(s *instanceapi.State) {
			s.PendingRestart, s.Raised, s.Lowered = append(slices.Clone(lowered), raised...), raised, lowered
			if len(s.PendingRestart) == 0 {
				s.PendingRestart = []string{"shared_buffers"}
			}
		})
	}
}

// request asks for a restart.
func (w *world) request(value string) { w.annotate(v1.RestartAnnotation, value) }

func (w *world) annotate(key, value string) {
	w.cluster = w.cluster.DeepCopy()
	metav1.SetMetaDataAnnotation(&w.cluster.ObjectMeta, key, value)
}

// cordon makes the node of an instance take no pods, or take them again.
func (w *world) cordon(instance string, cordoned bool) {
	if w.nodes == nil {
		w.nodes = map[string]*corev1.Node{}
	}
	name := "node-" + instance[len(instance)-1:]
	w.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
}

// loseNode takes a node with an instance's pod and the volume behind its claim, as
// the operator sees it when a new pod has found no node for long enough.
func (w *world) loseNode(instance string) {
	w.lost[w.volume(instance).UID] = "node-" + instance[len(instance)-1:]
	delete(w.objects["Pod"], instance)
	w.operate()
	w.kubernetes()
}

// restartedAll makes the named instances' pods as a restart would leave them.
func (w *world) restartedAll(names ...string) {
	for _, name := range names {
		new := specs.Pod(v1.WithDefaults(w.cluster), name, testImage)
		change(w, name, func(p *corev1.Pod) { maps.Copy(p.Annotations, new.Annotations) })
	}
}

func (w *world) class(name string) {
	w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Class = name })
}

// unprovisioned is a new cluster of one whose volume has that class, and which
// nobody provisions.
func (w *world) unprovisioned(class string) {
	*w = *newWorld(1)
	w.class(class)
	w.full = true
	w.turn()
}

func (w *world) grow(size string) {
	w.edit(func(s *v1.PostgresClusterSpec) { s.Storage.Size = resource.MustParse(size) })
}

// rebirth deletes the cluster and everything but its volumes, and makes one of
// the same name and that size.
func (w *world) rebirth(instances int32) {
	for _, kind := range allKinds {
		if kind != "PersistentVolumeClaim" && kind != v1.BackupKind {
			clear(w.objects[kind])
		}
	}
	reborn := newWorld(instances).cluster
	reborn.UID = "cluster-2"
	w.cluster, w.states = reborn, map[types.UID]instanceapi.State{}
}

func snapshot(w *world) string {
	text, err := json.Marshal(struct {
		Cluster any
		Objects any
	}{w.cluster, w.cached})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// describe writes what a pass decided and reports.
func describe(w *world, o Observation, p Plan, s v1.PostgresClusterStatus) string {
	var b strings.Builder
	if reason, note := takeover(o); reason != "" {
		fmt.Fprintf(&b, "event %s: %s\n", reason, note)
	}
	for _, n := range newsOfCertificates(o.Cluster.Status, s) {
		fmt.Fprintf(&b, "event %s: %s\n", n.Reason, n.Note)
	}
	for _, a := range p.Actions {
		fmt.Fprint(&b, a)
		if a.Reason != "" {
			fmt.Fprintf(&b, "   [%s: %s]", a.Reason, a.Note)
		}
		b.WriteByte('\n')
		if a.Verb == Update || a.Verb == Report {
			for _, line := range differences("", fields(w.cached[kindOf(a.Object)][a.Object.GetName()]), fields(a.Object)) {
				b.WriteString("    " + line + "\n")
			}
		}
	}
	if p.SpecError != "" {
		fmt.Fprintf(&b, "refused: %s\n", p.SpecError)
	}
	for _, wait := range p.Waits {
		fmt.Fprintf(&b, "wait: %s\n", wait)
	}
	fmt.Fprintf(&b, "members %s; again after %s\n", strings.Join(p.Members, " "), p.RecheckAfter)
	fmt.Fprintf(&b, "%s: primary %q, %d of %d ready, system known: %v\n", s.Phase, s.Primary, s.ReadyInstances, s.Instances, s.SystemID != "")
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "  %-16s %-5s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	if s.Backup != nil {
		text, err := json.Marshal(s.Backup)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "  backup %s\n", text)
	}
	for _, r := range s.Roles {
		fmt.Fprintf(&b, "  role %s ready=%v secret %q %s\n", r.Name, r.Ready, r.Secret, r.Message)
		if r.NextRotation != nil || r.LastRotation != nil {
			fmt.Fprintf(&b, "    last rotation %v, next %v\n", r.LastRotation, r.NextRotation)
		}
	}
	for _, d := range s.Databases {
		fmt.Fprintf(&b, "  database %s ready=%v %s\n", d.Name, d.Ready, d.Message)
	}
	for _, v := range s.Volumes {
		if v.Asked != v.Actual || v.State != v1.VolumeReady || strings.HasSuffix(v.Name, "-wal") {
			fmt.Fprintf(&b, "  volume %s %s: %s of %s %s\n", v.Name, v.State, orElse(v.Actual, "nothing"), v.Asked, v.Message)
		}
	}
	for _, m := range s.Members {
		fmt.Fprintf(&b, "  %s %q ready=%v on %q: %s\n", m.Name, m.Role, m.Ready, m.Node, m.Message)
	}
	return b.String()
}

func fields(o object) any {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		panic(err)
	}
	return v
}

// declareSome declares roles, one of them with a name that no Secret can have, and
// databases.
func declareSome(s *v1.PostgresClusterSpec) {
	s.Roles = append(s.Roles, v1.RoleSpec{Name: "reporting", Login: true, MemberOf: []string{"pg_read_all_data"}},
		v1.RoleSpec{Name: "Report_User", Login: true}, v1.RoleSpec{Name: "theirs", Login: true, PasswordSecret: &v1.SecretName{Name: "their-login"}},
		v1.RoleSpec{Name: "readers"}, v1.RoleSpec{Name: "gone", Ensure: v1.EnsureAbsent}, v1.RoleSpec{Name: "app", Login: true, CreateDB: true})
	s.Databases = append(s.Databases, v1.DatabaseSpec{Name: "reports", Owner: "Report_User", Extensions: []v1.ExtensionSpec{{Name: "pg_trgm"}},
		Schemas: []v1.SchemaSpec{{Name: "s", Grants: []v1.SchemaGrant{{Role: "reporting", Privileges: []v1.SchemaPrivilege{"USAGE"}}}}},
		Grants:  []v1.DatabaseGrant{{Role: "public", Revoked: []v1.DatabasePrivilege{"CONNECT"}}}}, v1.DatabaseSpec{Name: "app"})
}

// rotateMonthly declares that the owner gets a new password on the first of each month.
func rotateMonthly(s *v1.PostgresClusterSpec) {
	s.Roles = []v1.RoleSpec{{Name: "app", Login: true, Rotation: &v1.RotationSpec{Cron: "0 3 1 * *", TimeZone: "Etc/UTC"}}}
}

// next lets a login's Secret, and the server, have a next password, by that request.
func (w *world) next(secret, asked string) {
	change(w, secret, func(s *corev1.Secret) {
		s.Data[instanceapi.NextPasswordKey] = []byte("next")
		if asked != "" {
			s.Annotations = map[string]string{specs.RotationAskedAnnotation: asked}
			w.annotate(v1.RotateAnnotation, asked)
		}
	})
	w.agents()
}

// settleWith edits the spec, and lets everybody come to it.
func (w *world) settleWith(edits ...func(*v1.PostgresClusterSpec)) {
	for _, edit := range edits {
		w.edit(edit)
	}
	if _, settled := w.settle(); !settled {
		panic("the cluster did not settle")
	}
}

// differences are the fields that differ, with their new value.
func differences(path string, before, after any) []string {
	b, okB := before.(map[string]any)
	a, okA := after.(map[string]any)
	switch {
	case okA && okB:
		var lines []string
		keys := map[string]bool{}
		for key := range b {
			keys[key] = true
		}
		for key := range a {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			lines = append(lines, differences(path+"."+key, b[key], a[key])...)
		}
		return lines
	case cmp.Equal(before, after):
		return nil
	case strings.HasSuffix(path, "."+instanceapi.ConfigKey):
		return differences(path, parsed(before), parsed(after))
	case strings.HasSuffix(path, ".crt") || strings.HasSuffix(path, ".key") || isPassword(path) && after != nil:
		return []string{path + " = (made anew)"}
	}
	text, err := json.Marshal(after)
	if err != nil {
		panic(err)
	}
	return []string{path + " = " + string(text)}
}

// isPassword says whether a path is that of a password which is made at random.
func isPassword(path string) bool {
	return strings.HasSuffix(path, "."+instanceapi.NextPasswordKey) || strings.HasSuffix(path, "."+instanceapi.OtherPasswordKey)
}

// parsed is what a JSON text holds; nothing if it is none.
func parsed(text any) any {
	var v any
	if s, ok := text.(string); ok && json.Unmarshal([]byte(s), &v) == nil {
		return v
	}
	return map[string]any{}
}

// The table must show every kind of action, both answers of every condition,
// every phase, and every reason that the API has; and docs/events.md must
// explain the reasons.
func TestTheTableShowsEverything(t *testing.T) {
	pure(t)
	table, err := os.ReadFile("testdata/analyse.txt")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	constants := constantsOf(t, "../apis/postgres/v1/conditions.go")
	for name, value := range constants {
		switch {
		case strings.HasPrefix(name, "Reason"):
			// These are no rule's: see TestWhatTheSchemaLosesIsToldOnce, TestEachEndOfAContainerIsToldOnce.
			if value != v1.ReasonSchemaOutdated && value != v1.ReasonContainerEnded {
				mustMatch(t, table, `\b`+value+`\b`)
			}
			mustMatch(t, docs, "`"+value+"`")
		case strings.HasPrefix(name, "Condition"):
			mustMatch(t, table, `(?m)^  `+value+` +True `)
			mustMatch(t, table, `(?m)^  `+value+` +False `)
			mustMatch(t, docs, "`"+value+"`")
		case strings.HasPrefix(name, "Phase"):
			mustMatch(t, table, `(?m)^`+value+`: primary`)
			mustMatch(t, docs, "`"+value+"`")
		}
	}
	// Some kinds have nothing that a rule would change, or is asked to delete.
	for verb, kinds := range map[Verb][]string{
		Create: slices.DeleteFunc(slices.Clone(allKinds), func(kind string) bool { return kind == "PostgresRestore" }),
		Update: {"ConfigMap", "EndpointSlice", "Lease", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "Role", "RoleBinding", "Secret", "Service"},
		Delete: {"PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "PostgresBackup", "Secret", "Service"},
		Report: {"PostgresBackup", "PostgresRestore"},
		Clear:  {"PostgresCluster"},
	} {
		for _, kind := range kinds {
			mustMatch(t, table, fmt.Sprintf(`(?m)^%s %s `, verb, kind))
		}
	}
}

func mustMatch(t *testing.T, text []byte, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).Match(text) {
		t.Errorf("nothing matches %s", pattern)
	}
}

// constantsOf are the string constants of a Go file, by name.
func constantsOf(t *testing.T, path string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
			if constants[spec.Names[0].Name], err = strconv.Unquote(literal.Value); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	if len(constants) == 0 {
		t.Fatalf("no constants in %s", path)
	}
	return constants
}
