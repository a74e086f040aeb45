package controller

import (
	"context"
	"fmt"
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

// How long a cluster waits after a pass in which something failed.
const (
	firstBackOff = 250 * time.Millisecond
	lastBackOff  = 30 * time.Second
)

// Config is what a controller needs.
type Config struct {
	Kube     cluster.Kube
	Postgres versioned.Interface
	Events   events.EventRecorder
	Log      *logrus.Entry
	// Namespace is the one to watch; empty: all.
	Namespace string
	// OperatorImage is where the pods of clusters get their agent from.
	OperatorImage string
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
	log     *logrus.Entry
}

// New wires a controller; Run runs it.
func New(config Config) (*Controller, error) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstBackOff, lastBackOff),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "clusters"})
	sources, err := newSources(config.Kube, config.Postgres, config.Namespace, queue.Add)
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
		log: config.Log,
	}, nil
}

// Clusters is the cache of PostgresClusters.
func (c *Controller) Clusters() postgreslisters.PostgresClusterLister { return c.sources.clusters }

// HasSynced says whether every cache is filled.
func (c *Controller) HasSynced() bool { return c.sources.hasSynced() }

// Run works until ctx ends, then waits until every pass under way has ended.
func (c *Controller) Run(ctx context.Context) error {
	defer c.loops.wait()
	defer c.queue.ShutDown()

	c.sources.start(ctx)
	if err := c.sources.awaitSync(ctx); err != nil {
		return err
	}
	c.log.Info("caches are filled; looking after clusters")
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.work(ctx) {
	}
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
