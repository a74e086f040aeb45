package main

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"k8s.io/client-go/rest"

	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	"github.com/pgop/postgres-operator/pkg/metrics"
)

func TestProbesSayWhatIsWrong(t *testing.T) {
	var healthy, ready error
	handler := probes(func() error { return healthy }, func() error { return ready })
	expect := func(path string, code int, words string) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		if answer.Code != code || !strings.Contains(answer.Body.String(), words) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	expect("/healthz", 200, "ok")
	expect("/readyz", 200, "ok")
	ready = errors.New("is starting")
	expect("/healthz", 200, "ok")
	expect("/readyz", 503, "is starting")
	healthy = errors.New("is stuck")
	expect("/healthz", 503, "is stuck")
}

// A leader is ready once it works, a standby once it knows whom it would follow.
func TestReadyMeansAtWorkOrAbleToTakeOver(t *testing.T) {
	o := &operator{metrics: metrics.New("test")}
	expect := func(knowsLeader bool, want string) {
		t.Helper()
		got := ""
		if err := o.ready(knowsLeader); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("not ready because of %q instead of %q", got, want)
		}
	}
	expect(false, "has not seen the leader's Lease yet")
	expect(true, "")
	o.leads(true)
	expect(true, "leads, and is starting")
	o.controller.Store(idleController(t))
	expect(true, "leads, and is filling its caches")
	o.controller.Store(nil)
	o.leads(false)
	expect(true, "")
}

// idleController has not been run, so its caches are empty.
func idleController(t *testing.T) *controller.Controller {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	kube, err := cluster.NewKube(config)
	if err != nil {
		t.Fatal(err)
	}
	postgres, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	logger, _ := logrustest.NewNullLogger()
	c, err := controller.New(controller.Config{Kube: kube, Postgres: postgres, Log: logrus.NewEntry(logger)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
