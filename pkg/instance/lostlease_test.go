package instance

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

// loseLease lets the Lease be deleted and made again, as the operator makes it.
func (w *world) loseLease() {
	w.kube.set(func(f *fakeKubernetes) {
		f.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "made again"}}
	})
}

// C-22: with the Lease lost, an old primary that was away while another reigned does
// not reign again, however early it is: all volumes are heard first, and the newest
// memory reigns.
func TestC22LostLeaseIsTakenByTheNewestMemory(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	pods["shop-1"].vanish()
	primary := w.awaitPrimary(pods, "shop-1")
	last := primary.options.Instance
	w.awaitMembers(1)
	must(t, primary.sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	for name, p := range pods {
		if name != "shop-1" {
			p.vanish()
		}
	}
	w.loseLease()
	w.startAgain(pods, "shop-1")
	pods["shop-1"].waitFor("waits for the others", func(s instanceapi.State) bool {
		return s.Phase == instanceapi.PhaseWaiting && strings.Contains(s.Message, "shop-2, shop-3") && strings.Contains(s.Election, "shop-2, shop-3")
	})
	if record, holder := w.record(); !record.IsEmpty() {
		t.Fatalf("%s has taken the Lease: %s", holder, record)
	}
	w.startAgain(pods, "shop-2", "shop-3")
	primary = w.awaitPrimary(pods, "shop-1")
	if primary.options.Instance != last {
		t.Errorf("%s reigns after %s", primary.options.Instance, last)
	}
	if got := primary.query("SELECT i FROM public.t"); got != "42" {
		t.Errorf("what was committed last is %q", got)
	}
	for name, p := range pods {
		if name != last {
			p.waitFor("streams", isStreaming)
		}
	}
}

// A primary goes on whose Lease is deleted, and its sessions, too; also while a
// replica is away.
func TestC22PrimaryGoesOnOverALostLease(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{})
	pods["shop-3"].vanish()
	w.awaitMembers(1)
	before, _ := w.record()
	life := pods["shop-1"].query("SELECT pg_postmaster_start_time()::text")
	w.loseLease()
	w.awaitMembers(1)
	if record, holder := w.record(); holder != "shop-1" || record.Term != before.Term {
		t.Errorf("%s reigns: %s, after %s", holder, record, before)
	}
	if got := pods["shop-1"].query("SELECT pg_postmaster_start_time()::text"); got != life {
		t.Errorf("the server was started again at %s, after %s", got, life)
	}
	pods["shop-2"].waitFor("streams", isStreaming)
}

// One instance alone waits for nobody, nor for those that never had a volume.
func TestC22LostLeaseOfOneInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("shop-1", "127.0.0.51")
	p.waitFor("ready", isReady)
	before, _ := w.record()
	p.stop()
	w.loseLease()
	w.apply(func() { w.config.Members, w.config.Blank = []string{"shop-1", "shop-2"}, []string{"shop-2"} })
	p = w.start("shop-1", "127.0.0.51")
	p.waitFor("ready again", isReady)
	if record, holder := w.record(); holder != "shop-1" || record.Term <= before.Term {
		t.Errorf("%s reigns: %s", holder, record)
	}
}

// Where the volume that reigned last is gone, those who remember its reign elect.
func TestC22LostLeaseWithItsHolder(t *testing.T) {
	t.Parallel()
	w, pods := three(t, instanceapi.HA{Mode: "required", Need: 1})
	must(t, pods["shop-1"].sql.Exec(t.Context(), "CREATE TABLE public.t AS SELECT 42 AS i"))
	for _, name := range []string{"shop-2", "shop-3"} {
		pods[name].waitFor("remembers who can take over", func(s instanceapi.State) bool { return len(s.LastReign.Members) == 2 })
	}
	for _, p := range pods {
		p.vanish()
	}
	w.loseLease()
	w.apply(func() { w.config.Blank, w.config.SystemID = []string{"shop-1"}, pods["shop-1"].systemID })
	w.startAgain(pods, "shop-2", "shop-3")
	primary := w.awaitPrimary(pods, "shop-1")
	if got := primary.query("SELECT i FROM public.t"); got != "42" {
		t.Errorf("what was committed last is %q", got)
	}
}

func TestInstancesToHear(t *testing.T) {
	got := instancesToHear(instanceapi.Config{Members: []string{"shop-1", "shop-2", "shop-3"}, Blank: []string{"shop-2"}})
	if strings.Join(got, " ") != "shop-1 shop-3" {
		t.Errorf("got %v", got)
	}
}
