package main

import (
	"fmt"
	"log/slog"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// newLogger makes the logger and leads client-go's own lines into it.
func newLogger(level string) (*logrus.Entry, error) {
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("flag --log-level: %w", err)
	}
	logger := logrus.New()
	logger.SetLevel(parsed)
	logger.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true, TimestampFormat: "2006-01-02T15:04:05.000Z07:00"})
	log := logrus.NewEntry(logger)
	klog.SetSlogLogger(slog.New(&slogBridge{log: log.WithField("from", "client-go")}))
	return log, nil
}
