package main

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"k8s.io/klog/v2"
)

// line is what a line of the log says.
type line struct {
	Level   logrus.Level
	Message string
	Fields  logrus.Fields
}

// secret shows itself only as a LogValuer says.
type secret struct{}

func (secret) LogValue() slog.Value { return slog.StringValue("(hidden)") }

// bridged logs at that level through the bridge and returns what was written.
func bridged(level logrus.Level, log func(*slog.Logger)) []line {
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(level)
	log(slog.New(&slogBridge{log: logrus.NewEntry(logger).WithField("from", "client-go")}))
	var lines []line
	for _, e := range hook.AllEntries() {
		lines = append(lines, line{e.Level, e.Message, e.Data})
	}
	return lines
}

func TestLinesOfClientGoAreLinesOfOurOwn(t *testing.T) {
	got := bridged(logrus.InfoLevel, func(log *slog.Logger) {
		log.Debug("not shown")
		log.Info("plain", "n", 1)
		log.With("a", "b").Warn("with a field", "secret", secret{})
		log.WithGroup("queue").With("depth", 3).Error("in a group", "name", "clusters")
	})
	want := []line{
		{logrus.InfoLevel, "plain", logrus.Fields{"from": "client-go", "n": int64(1)}},
		{logrus.WarnLevel, "with a field", logrus.Fields{"from": "client-go", "a": "b", "secret": "(hidden)"}},
		{logrus.ErrorLevel, "in a group", logrus.Fields{"from": "client-go", "queue.depth": int64(3), "queue.name": "clusters"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestVerbosityOfKlogIsDebug(t *testing.T) {
	log := func(log *slog.Logger) {
		klog.SetSlogLogger(log)
		defer klog.ClearLogger()
		klog.ErrorS(errors.New("cut"), "watch ended", "kind", "Pod")
		klog.V(0).InfoS("shown", "n", 1)
		klog.V(4).InfoS("hidden by klog itself")
	}
	got := bridged(logrus.InfoLevel, log)
	want := []string{"watch ended", "shown"}
	var messages []string
	for _, l := range got {
		messages = append(messages, l.Message)
	}
	if diff := cmp.Diff(want, messages); diff != "" {
		t.Error(diff)
	}
	if got[0].Level != logrus.ErrorLevel || got[0].Fields["kind"] != "Pod" {
		t.Errorf("%+v", got[0])
	}
	for level, want := range map[slog.Level]logrus.Level{-4: logrus.DebugLevel, -1: logrus.DebugLevel, 0: logrus.InfoLevel, 4: logrus.WarnLevel, 8: logrus.ErrorLevel, 12: logrus.ErrorLevel} {
		if got := logrusLevel(level); got != want {
			t.Errorf("level %d is %v, want %v", level, got, want)
		}
	}
}
