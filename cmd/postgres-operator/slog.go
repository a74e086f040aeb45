package main

import (
	"context"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// slogBridge writes what client-go logs as lines of our own.
type slogBridge struct {
	log    *logrus.Entry
	prefix string
}

// Enabled says whether a line of this level is written.
func (b *slogBridge) Enabled(_ context.Context, level slog.Level) bool {
	return b.log.Logger.IsLevelEnabled(logrusLevel(level))
}

// Handle writes one line.
func (b *slogBridge) Handle(_ context.Context, record slog.Record) error {
	fields := logrus.Fields{}
	record.Attrs(func(a slog.Attr) bool {
		fields[b.prefix+a.Key] = a.Value.Resolve().Any()
		return true
	})
	b.log.WithFields(fields).Log(logrusLevel(record.Level), record.Message)
	return nil
}

// WithAttrs returns a handler that adds attrs to every line.
func (b *slogBridge) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := logrus.Fields{}
	for _, a := range attrs {
		fields[b.prefix+a.Key] = a.Value.Resolve().Any()
	}
	return &slogBridge{log: b.log.WithFields(fields), prefix: b.prefix}
}

// WithGroup returns a handler that puts name before every key.
func (b *slogBridge) WithGroup(name string) slog.Handler {
	return &slogBridge{log: b.log, prefix: b.prefix + name + "."}
}

// logrusLevel maps klog's levels, where verbosity n is slog level -n: what
// klog shows by default is of interest to few who run databases.
func logrusLevel(level slog.Level) logrus.Level {
	switch {
	case level >= slog.LevelError:
		return logrus.ErrorLevel
	case level >= slog.LevelWarn:
		return logrus.WarnLevel
	case level >= slog.LevelInfo:
		return logrus.InfoLevel
	}
	return logrus.DebugLevel
}
