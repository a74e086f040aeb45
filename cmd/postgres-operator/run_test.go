package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
)

// quiet hides what a flag set prints with an error.
func quiet(t *testing.T) {
	t.Helper()
	old := os.Stderr
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = null
	t.Cleanup(func() {
		os.Stderr = old
		null.Close()
	})
}

func TestOperatorFlags(t *testing.T) {
	quiet(t)
	defaults := operatorFlags{image: "img", createCRD: true, probes: ":8080", metrics: ":8081", logLevel: "info", leafLifetime: 90 * 24 * time.Hour}
	with := func(change func(*operatorFlags)) operatorFlags {
		f := defaults
		change(&f)
		return f
	}
	cases := []struct {
		why  string
		env  map[string]string
		args []string
		want operatorFlags
		err  string
	}{
		{"an image is enough", nil, []string{"--image=img"}, defaults, ""},
		{"from the environment", map[string]string{"OPERATOR_IMAGE": "img", "WATCH_NAMESPACE": "db", "POD_NAMESPACE": "ops"}, nil,
			with(func(f *operatorFlags) { f.namespace, f.electIn = "db", "ops" }), ""},
		{"a flag is stronger than the environment", map[string]string{"OPERATOR_IMAGE": "other"}, []string{"-image", "img"}, defaults, ""},
		{"all of them", nil, []string{"--image=img", "--kubeconfig=/k", "--namespace=db", "--create-crd=false", "--leader-elect-namespace=ops",
			"--probe-listen=:1", "--metrics-listen=:2", "--log-level=debug", "--certificate-lifetime=5m"},
			operatorFlags{image: "img", kubeconfig: "/k", namespace: "db", electIn: "ops", probes: ":1", metrics: ":2", logLevel: "debug", leafLifetime: 5 * time.Minute}, ""},
		{"no image", nil, nil, operatorFlags{}, "flag --image (or environment OPERATOR_IMAGE): name the image of this operator, from which instances get their agent"},
		{"a value in the way of a shell", nil, []string{"--image=img", "--create-crd", "false"}, operatorFlags{}, `run: "false" is no flag; write a flag's value as --flag=value`},
		{"certificates that end too soon", nil, []string{"--image=img", "--certificate-lifetime=1m"}, operatorFlags{}, "flag --certificate-lifetime: 1m0s is too short for certificates to reach instances in time; give at least 5m0s"},
		{"an unknown flag", nil, []string{"--imgae=img"}, operatorFlags{}, "flag provided but not defined: -imgae"},
	}
	for _, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			t.Setenv("OPERATOR_IMAGE", c.env["OPERATOR_IMAGE"])
			t.Setenv("WATCH_NAMESPACE", c.env["WATCH_NAMESPACE"])
			t.Setenv("POD_NAMESPACE", c.env["POD_NAMESPACE"])
			got, err := parseOperatorFlags(c.args)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("got error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(operatorFlags{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	quiet(t)
	for _, args := range [][]string{{"run", "-h"}, {"instance", "--help"}, {"verify", "-h"}} {
		if err := dispatch(t.Context(), args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := parseOperatorFlags([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
}

func TestUnknownSubcommandsAreRefused(t *testing.T) {
	quiet(t)
	for _, args := range [][]string{nil, {"rnu"}, {"--image=img"}} {
		if err := dispatch(t.Context(), args); err == nil {
			t.Errorf("%v: accepted", args)
		}
	}
}

func TestLogLevelIsChecked(t *testing.T) {
	if _, err := newLogger("loud"); err == nil {
		t.Error("accepted")
	}
	log, err := newLogger("warning")
	if err != nil {
		t.Fatal(err)
	}
	log.Logger.SetOutput(io.Discard)
	if log.Logger.Level != logrus.WarnLevel {
		t.Errorf("level %v", log.Logger.Level)
	}
}
