package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
	"github.com/pgop/postgres-operator/pkg/internal/wallclock"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
)

// jumps are how far people and NTP move the hands of a clock.
var jumps = map[string]time.Duration{"five minutes back": -5 * time.Minute, "an hour ahead": time.Hour, "a year back": -365 * 24 * time.Hour}

// C-24: what the operator waits for takes as long as it does by the monotonic
// clock, wherever the hands of the wall clock are put meanwhile.
func TestC24WaitsOutlastClockJumps(t *testing.T) {
	for why, jump := range jumps {
		t.Run(why, func(t *testing.T) {
			w := settledWorld(2)
			w.now = time.Now()
			w.annotate(v1.SwitchoverAnnotation, "shop-2")
			w.operate()
			w.catchUp(allKinds...)
			l := &Loop{homeless: sightings{}}
			look := func(now time.Time) Observation {
				o := w.observe()
				o.Now = now
				l.lookAtTheClock(&o)
				return o
			}
			began := w.now
			if o := look(began); o.told().Switchover == nil || o.SwitchoverWaited > time.Second || o.LeaseUnchanged != 0 {
				t.Fatalf("at first: told %+v, %s ago; the Lease unchanged for %s", o.told().Switchover, o.SwitchoverWaited, o.LeaseUnchanged)
			}
			rotation := look(began).RotationWaited
			l.homeless.last("claim-2", true, began)
			for _, after := range []time.Duration{0, time.Second, 9 * time.Second, 11 * time.Second, 59 * time.Second, 61 * time.Second} {
				now := wallclock.Move(began.Add(after), jump)
				o := look(now)
				if o.LeaseUnchanged != after || o.SwitchoverWaited/time.Second != after/time.Second || o.RotationWaited != rotation+after {
					t.Errorf("after %s: the Lease unchanged for %s, the switchover asked for %s ago, the rotation %s", after, o.LeaseUnchanged, o.SwitchoverWaited, o.RotationWaited-rotation)
				}
				if got := l.homeless.last("claim-2", true, now); got != after {
					t.Errorf("after %s: no node is found for %s", after, got)
				}
				if got, want := o.leaseExpired(), after >= 10*time.Second; got != want {
					t.Errorf("after %s: the Lease has expired: %v", after, got)
				}
				if got, want := whyStuck(o) != "", after >= switchoverPatience; got != want {
					t.Errorf("after %s: the switchover is stuck: %v", after, got)
				}
			}
		})
	}
}

// C-24: a cluster stops when its agents have had the time to learn of it, wherever
// the hands of the wall clock are put meanwhile.
func TestC24AStopOutlastsClockJumps(t *testing.T) {
	for why, jump := range jumps {
		t.Run(why, func(t *testing.T) {
			w := settledWorld(2)
			w.now = time.Now()
			w.edit(func(s *v1.PostgresClusterSpec) { s.Instances = ptr.To[int32](0) })
			w.operate()
			w.catchUp(allKinds...)
			l := &Loop{homeless: sightings{}}
			for _, after := range []time.Duration{0, time.Second, 14 * time.Second, 16 * time.Second} {
				o := w.observe()
				if o.Now = w.now; after > 0 {
					o.Now = wallclock.Move(w.now.Add(after), jump)
				}
				if o.stoppingSince().IsZero() {
					t.Fatal("the status does not tell that it stops")
				}
				if l.lookAtTheClock(&o); o.StopWaited/time.Second != after/time.Second {
					t.Errorf("after %s: it stops since %s", after, o.StopWaited)
				}
			}
		})
	}
}

// A sidecar is on trial for a moment, by whatever clock (C-24).
func TestC24ASidecarsTrialEnds(t *testing.T) {
	now := time.Now()
	for age, want := range map[time.Duration]bool{0: true, 9 * time.Second: true, 10 * time.Second: false, -9 * time.Second: true, -time.Hour: false} {
		running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-age))}}}
		if got := isOnTrial(running, now); got != want {
			t.Errorf("it runs for %s: on trial %v", age, got)
		}
	}
}

// C-24: an operator that begins believes of a stored time no more than can be.
func TestC24StoredTimesOfAnotherClock(t *testing.T) {
	now := time.Now()
	cases := []struct {
		why         string
		began, want time.Duration
	}{
		{"nobody stored it", 0, 0},
		{"a minute ago", -time.Minute, time.Minute},
		{"in an hour, by a clock that was ahead", time.Hour, 0},
		{"a year ago, by a clock that was behind", -365 * 24 * time.Hour, longestBefore},
	}
	for _, c := range cases {
		var began time.Time
		if c.began != 0 {
			began = now.Add(c.began).Round(0)
		}
		var s sighting
		if got := s.lasts("a", began, now); got.Round(time.Second) != c.want {
			t.Errorf("%s: %s", c.why, got)
		}
		if got := s.lasts("a", began, now.Add(time.Second)); got.Round(time.Second) != c.want+time.Second {
			t.Errorf("%s, a second later: %s", c.why, got)
		}
		if got := s.lasts("b", time.Time{}, now.Add(time.Second)); got != 0 {
			t.Errorf("%s, and then something else: %s", c.why, got)
		}
	}
}

// C-24: an operator whose clock jumps ahead takes no switchover for stuck that has
// just begun.
func TestC24SwitchoverUnderWayOutlastsAJump(t *testing.T) {
	w := settledWorld(2)
	w.now = time.Now()
	w.annotate(v1.SwitchoverAnnotation, "shop-2")
	w.operate()
	w.say("shop-1", func(s *instanceapi.State) { s.Request = "" })
	l := &Loop{homeless: sightings{}}
	for _, now := range []time.Time{time.Now(), wallclock.Move(time.Now(), time.Hour)} {
		w.catchUp(allKinds...)
		w.now = now
		o := w.observe()
		l.lookAtTheClock(&o)
		p := Analyse(o)
		for _, a := range p.Actions {
			if a.Verb == Clear {
				t.Errorf("the request is taken away: %s", a.Note)
			}
		}
	}
}
