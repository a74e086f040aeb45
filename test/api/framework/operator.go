//go:build e2e

package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/scheme"
)

// OperatorImage is what operators call their own image.
const OperatorImage = "docker.io/pgop/postgres-operator:test"

// Operator runs in this process and looks after the test's namespace. It
// reaches the API server through Proxy and nothing else.
type Operator struct {
	Proxy *Proxy
	Log   *Log

	f          *Framework
	controller *controller.Controller
	cancel     context.CancelFunc
	ended      chan struct{}
	err        error
}

// OperatorOption changes how an operator is run.
type OperatorOption func(*controller.Config)

// WithImage is the image that the operator believes to be its own.
func WithImage(image string) OperatorOption {
	return func(c *controller.Config) { c.OperatorImage = image }
}

// StartOperator runs another operator until Stop, or until the test ends.
func (f *Framework) StartOperator(options ...OperatorOption) *Operator {
	f.T.Helper()
	o := &Operator{f: f, Log: &Log{}, ended: make(chan struct{})}
	var err error
	if o.Proxy, err = startProxy(f.Config); err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(o.Proxy.close)
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	config, err := o.configure(ctx, o.Proxy.config())
	if err != nil {
		f.T.Fatalf("wire an operator: %v", err)
	}
	for _, option := range options {
		option(&config)
	}
	c, err := controller.New(config)
	if err != nil {
		f.T.Fatalf("wire an operator: %v", err)
	}
	o.controller = c
	f.operators = append(f.operators, o)
	f.T.Cleanup(o.Stop)
	go func() {
		defer close(o.ended)
		o.err = c.Run(ctx)
	}()
	return o
}

// configure wires an operator as `postgres-operator run` does.
func (o *Operator) configure(ctx context.Context, config *rest.Config) (controller.Config, error) {
	kube, err1 := cluster.NewKube(config)
	sink, err2 := eventsclient.NewForConfig(config)
	custom := rest.CopyConfig(config)
	custom.ContentType, custom.AcceptContentTypes = "", ""
	postgres, err3 := versioned.NewForConfig(custom)
	kinds := runtime.NewScheme()
	err := errors.Join(err1, err2, err3, scheme.AddToScheme(kinds), kubescheme.AddToScheme(kinds))
	if err != nil {
		return controller.Config{}, err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: sink})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return controller.Config{}, err
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	logger := logrus.New()
	logger.SetOutput(o.Log)
	logger.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true, TimestampFormat: "15:04:05.000"})
	return controller.Config{
		Kube:          kube,
		Postgres:      postgres,
		Events:        broadcaster.NewRecorder(kinds, "postgres-operator"),
		Log:           logrus.NewEntry(logger),
		Namespace:     o.f.Namespace,
		OperatorImage: OperatorImage,
		Now:           time.Now,
	}, nil
}

// Drain asks the operator to end in order.
func (o *Operator) Drain() { o.controller.Drain() }

// Stop ends the operator at once, as one that has lost its Lease ends.
func (o *Operator) Stop() {
	o.cancel()
	o.AwaitEnd()
}

// AwaitEnd returns when the operator has ended.
func (o *Operator) AwaitEnd() {
	select {
	case <-o.ended:
	case <-time.After(Patience):
		o.f.T.Error("the operator does not end")
		return
	}
	if o.err != nil && !errors.Is(o.err, context.Canceled) {
		o.f.T.Errorf("the operator ended: %v", o.err)
	}
}

// Log is what an operator has logged.
type Log struct {
	mu    sync.Mutex
	lines []string
}

// Write takes a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

// Lines are all lines so far.
func (l *Log) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Len is how many lines there are, as a mark for Since.
func (l *Log) Len() int { return len(l.Lines()) }

// Since are the lines that came after a mark.
func (l *Log) Since(mark int) []string { return l.Lines()[mark:] }

// String names the operator for messages.
func (o *Operator) String() string { return fmt.Sprintf("operator behind %s", o.Proxy.url()) }
