package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	postgreslisters "github.com/pgop/postgres-operator/pkg/generated/listers/postgres/v1"
)

const (
	// How long a cluster waits after a pass in which something failed.
	firstBackOff = 250 * time.Millisecond
	lastBackOff  = 30 * time.Second
	// drainTimeout is what passes under way have to end, which take a second at
	// most unless the API server is slow.
	drainTimeout = 5 * time.Second
)

// Config is what a controller needs.
type Config struct {
	Kube     cluster.Kube
	Postgres versioned.Interface
	Events   events.EventRecorder
	Log      *logrus.Entry
	// Namespace is the one to watch; empty: all.
	Namespace string
	// WatchNodes lets clusters react to nodes that are cordoned or gone; see
	// MayWatchNodes.
	WatchNodes bool
	// OperatorImage is where the pods of clusters get their agent from.
	OperatorImage string
	// LeafLifetime is for how long new certificates are valid; 0: 90 days.
	LeafLifetime time.Duration
	// Now is the wall clock.
	Now func() time.Time
	// Passed is told of each pass over a cluster; may be nil.
	Passed func(took time.Duration, failed bool)
}

// Controller runs a loop for each PostgresCluster.
type Controller struct {
	sources *sources
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	loops   *registry
	orphans orphans
	log     *logrus.Entry
	// drained is closed, once, when nothing more is to be begun.
	drained chan struct{}
	drain   sync.Once
}

// New wires a controller; Run runs it.
func New(config Config) (*Controller, error) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstBackOff, lastBackOff),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "clusters"})
	sources, err := newSources(config.Kube, config.Postgres, config.Namespace, config.WatchNodes, queue.Add)
	if err != nil {
		return nil, fmt.Errorf("set up informers: %w", err)
	}
	deps := cluster.Deps{
		Kube:          config.Kube,
		Postgres:      config.Postgres.PgopV1(),
		Clusters:      sources.clusters,
		Listers:       sources.listers,
		Events:        config.Events,
		Queue:         queue,
		OperatorImage: config.OperatorImage,
		LeafLifetime:  config.LeafLifetime,
		Log:           config.Log,
		Now:           config.Now,
		Passed:        config.Passed,
	}
	return &Controller{
		sources: sources,
		queue:   queue,
		loops: newRegistry(func(key cache.ObjectName, uid types.UID) *cluster.Loop {
			return cluster.NewLoop(deps, key, uid)
		}),
		orphans: orphans{backups: sources.listers.Backups, restores: sources.listers.Restores, client: config.Postgres.PgopV1()},
		log:     config.Log,
		drained: make(chan struct{}),
	}, nil
}

// Clusters is the cache of PostgresClusters.
func (c *Controller) Clusters() postgreslisters.PostgresClusterLister { return c.sources.clusters }

// HasSynced says whether every cache is filled.
func (c *Controller) HasSynced() bool { return c.sources.hasSynced() }

// Drain makes Run begin nothing more and return when the passes under way have
// ended. Those that take too long are cut short.
func (c *Controller) Drain() { c.drain.Do(func() { close(c.drained) }) }

// Run works until it is drained, or ctx ends, which cuts passes under way short.
// It returns when every pass has ended.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cut := context.WithCancel(ctx)
	defer c.loops.wait()
	defer cut()
	beginning, stop := context.WithCancel(ctx)
	go func() {
		select {
		case <-c.drained:
		case <-ctx.Done():
		}
		stop()
		c.queue.ShutDown()
	}()

	c.sources.start(ctx)
	if err := c.sources.awaitSync(beginning); err != nil {
		return ctx.Err() // nil if it was drained
	}
	c.log.Info("caches are filled; looking after clusters")
	for beginning.Err() == nil && c.work(ctx) {
	}
	c.loops.drain()
	c.log.Info("stopping: nothing more is begun; waiting for the passes under way")
	defer time.AfterFunc(drainTimeout, cut).Stop()
	c.loops.wait()
	return nil
}

// work handles one key; false when the queue was shut down. One worker is
// enough, since all that it does is wake loops.
func (c *Controller) work(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(ctx, key); err != nil {
		c.log.WithField("cluster", key.String()).WithError(err).Warn("can't read the cluster; trying again")
		c.queue.AddRateLimited(key)
	}
	return true
}

// sync finds the loop of the cluster that key names, starts or stops it, and
// wakes it.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) error {
	found, err := c.sources.clusters.PostgresClusters(key.Namespace).Get(key.Name)
	if errors.IsNotFound(err) {
		c.loops.stop(key)
		c.queue.Forget(key)
		go c.reportOrphans(ctx, key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read cluster %s: %w", key, err)
	}
	if found.DeletionTimestamp != nil {
		c.loops.stop(key) // the API server's garbage collector takes the children
		return nil
	}
	c.loops.ensure(ctx, key, found.UID).Wake()
	return nil
}

// reportOrphans looks after the backups of a cluster that is not there.
func (c *Controller) reportOrphans(ctx context.Context, key cache.ObjectName) {
	if err := c.orphans.report(ctx, key); err != nil && ctx.Err() == nil {
		c.log.WithField("cluster", key.String()).WithError(err).Warn("can't report on backups; trying again")
		c.queue.AddRateLimited(key)
	}
}
