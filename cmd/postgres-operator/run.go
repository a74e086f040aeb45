package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
	_ "time/tzdata" // for the time zones of schedules: the image holds nothing but this program

	"github.com/sirupsen/logrus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/pgop/postgres-operator/deploy"
	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/scheme"
	"github.com/pgop/postgres-operator/pkg/metrics"
	"github.com/pgop/postgres-operator/pkg/pki"
)

// operatorFlags are the flags of `run`.
type operatorFlags struct {
	kubeconfig string
	namespace  string
	image      string
	createCRD  bool
	// electIn is the namespace of the Lease by which replicas elect their
	// leader; empty: this is the only one.
	electIn  string
	probes   string
	metrics  string
	logLevel string
	// leafLifetime is for how long new certificates are valid.
	leafLifetime time.Duration
}

func parseOperatorFlags(args []string) (operatorFlags, error) {
	var f operatorFlags
	set := flag.NewFlagSet("run", flag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig, to run outside of the cluster; default: the pod's service account")
	set.StringVar(&f.namespace, "namespace", os.Getenv("WATCH_NAMESPACE"), "the namespace to watch; default: all (environment WATCH_NAMESPACE)")
	set.StringVar(&f.image, "image", os.Getenv("OPERATOR_IMAGE"), "image of this operator, from which instances get their agent (environment OPERATOR_IMAGE)")
	set.BoolVar(&f.createCRD, "create-crd", true, "install the CRDs and their admission policy at start")
	set.StringVar(&f.electIn, "leader-elect-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the Lease by which replicas elect their leader; empty: no election, for a single one outside of the cluster (environment POD_NAMESPACE)")
	set.StringVar(&f.metrics, "metrics-listen", ":8081", "address of /metrics")
	set.StringVar(&f.probes, "probe-listen", ":8080", "address of /healthz and /readyz")
	set.DurationVar(&f.leafLifetime, "certificate-lifetime", 90*24*time.Hour, "for how long the certificates of instances, roles and of the operator are valid, at least 5m; they are renewed in the last third of that, and two minutes before their end at the latest")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning or error")
	if err := parseFlags(set, args); err != nil {
		return f, err
	}
	if f.leafLifetime < pki.ShortestLeafLifetime {
		return f, fmt.Errorf("flag --certificate-lifetime: %s is too short for certificates to reach instances in time; give at least %s", f.leafLifetime, pki.ShortestLeafLifetime)
	}
	if f.image == "" {
		return f, errors.New("flag --image (or environment OPERATOR_IMAGE): name the image of this operator, from which instances get their agent")
	}
	return f, nil
}

// parseFlags accepts flags and nothing else, so that the false of
// `--create-crd false` is not overlooked.
func parseFlags(set *flag.FlagSet, args []string) error {
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%s: %q is no flag; write a flag's value as --flag=value", set.Name(), set.Arg(0))
	}
	return nil
}

func runOperator(ctx context.Context, args []string) error {
	f, err := parseOperatorFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	// Caches are small and live long: a lower target costs little time and
	// halves the memory.
	debug.SetGCPercent(50)
	log, err := newLogger(f.logLevel)
	if err != nil {
		return err
	}
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	return operate(ctx, f, config, log)
}

// operate serves probes and metrics, and looks after clusters while it leads.
func operate(ctx context.Context, f operatorFlags, config *rest.Config, log *logrus.Entry) error {
	counted := metrics.New(version)
	o := &operator{flags: f, config: config, log: log, metrics: counted}
	contest, err := o.contest()
	if err != nil {
		return err
	}
	// Until the work has ended, which may be some time after ctx.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", counted.Handler())
	serve(serving, f.metrics, mux, log)
	serve(serving, f.probes, probes(contest.Check, func() error { return o.ready(contest.KnowsLeader()) }), log)
	log.WithFields(logrus.Fields{"version": version, "namespace": orAll(f.namespace)}).Info("operator starts")
	defer log.Info("operator has stopped")
	if f.electIn == "" {
		log.Warn("no leader election: see to it that no other operator looks after the same clusters")
		o.leads(true)
		return o.lookAfterClusters(serving, ctx)
	}
	return contest.Run(ctx, o.lookAfterClusters)
}

// operator is what a process is made of.
type operator struct {
	flags   operatorFlags
	config  *rest.Config
	log     *logrus.Entry
	metrics *metrics.Metrics
	leading atomic.Bool
	// controller is there while this process leads and has begun to work.
	controller atomic.Pointer[controller.Controller]
}

// leads is told when this process begins and ends to lead.
func (o *operator) leads(leads bool) {
	o.leading.Store(leads)
	o.metrics.Leads(leads)
}

func (o *operator) contest() (*controller.Contest, error) {
	leases, err := coordinationclient.NewForConfig(o.config)
	if err != nil {
		return nil, fmt.Errorf("make the client of Leases: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find a name for this process: %w", err)
	}
	return &controller.Contest{
		Leases: leases, Namespace: o.flags.electIn, Name: "postgres-operator",
		Identity: host + "_" + string(uuid.NewUUID()), Log: o.log, Leads: o.leads,
	}, nil
}

// ready says what is missing until the leader works, with the CRD installed and
// its caches filled, or a standby could take over.
func (o *operator) ready(knowsLeader bool) error {
	c := o.controller.Load()
	switch {
	case o.leading.Load() && c == nil:
		return errors.New("leads, and is starting")
	case o.leading.Load() && !c.HasSynced():
		return errors.New("leads, and is filling its caches")
	case !o.leading.Load() && !knowsLeader:
		return errors.New("has not seen the leader's Lease yet")
	}
	return nil
}

// lookAfterClusters is the leader's work: it installs the CRD and runs the
// controller. When stopping ends, passes under way still have time to end; when
// ctx ends, they are cut short.
func (o *operator) lookAfterClusters(ctx, stopping context.Context) error {
	// Custom resources have no protobuf form.
	custom := rest.CopyConfig(o.config)
	custom.ContentType, custom.AcceptContentTypes = "", ""
	if o.flags.createCRD {
		if err := o.install(ctx, stopping, custom); err != nil {
			return err
		}
	}
	recorder, stop, err := o.recordEvents(ctx)
	if err != nil {
		return err
	}
	defer stop()
	kube, err := cluster.NewKube(o.config)
	if err != nil {
		return err
	}
	postgres, err := versioned.NewForConfig(custom)
	if err != nil {
		return fmt.Errorf("make the client of PostgresClusters: %w", err)
	}
	watchNodes, err := o.mayWatchNodes(ctx, kube)
	if err != nil {
		return err
	}
	c, err := controller.New(controller.Config{
		Kube:          kube,
		Postgres:      postgres,
		Events:        recorder,
		Log:           o.log,
		Namespace:     o.flags.namespace,
		WatchNodes:    watchNodes,
		OperatorImage: o.flags.image,
		LeafLifetime:  o.flags.leafLifetime,
		Now:           time.Now,
		Passed:        o.metrics.Passed,
	})
	if err != nil {
		return err
	}
	forget, err := o.metrics.WatchClusters(c.Clusters())
	if err != nil {
		return err
	}
	defer forget()
	o.controller.Store(c)
	defer o.controller.Store(nil)
	defer context.AfterFunc(stopping, c.Drain)()
	return c.Run(ctx)
}

// mayWatchNodes says whether nodes are to be watched: only by an operator of all
// namespaces, and if it may.
func (o *operator) mayWatchNodes(ctx context.Context, kube cluster.Kube) (bool, error) {
	if o.flags.namespace != "" {
		return false, nil
	}
	may, err := controller.MayWatchNodes(ctx, kube)
	if err == nil && !may {
		o.log.Warn("this operator may not look at nodes: primaries don't leave nodes that are cordoned")
	}
	return may, err
}

// install puts the CRDs, and the policy that belongs to them, into the cluster. It
// may be cut short anywhere.
func (o *operator) install(ctx, stopping context.Context, custom *rest.Config) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	defer context.AfterFunc(stopping, cut)()
	extensions, err := apiextensions.NewForConfig(custom)
	if err != nil {
		return fmt.Errorf("make the client of CRDs: %w", err)
	}
	for _, crd := range [][]byte{deploy.PostgresClusterCRD, deploy.PostgresBackupCRD, deploy.PostgresRestoreCRD} {
		if err := controller.InstallCRD(ctx, extensions.ApiextensionsV1().CustomResourceDefinitions(), crd, o.log); err != nil {
			return err
		}
	}
	admission, err := admissionclient.NewForConfig(o.config)
	if err != nil {
		return fmt.Errorf("make the client of admission policies: %w", err)
	}
	return controller.InstallPolicy(ctx, admission, deploy.PostgresClusterPolicy, o.log)
}

// recordEvents makes a recorder of events about clusters, which name what
// clusters are made of, and a function that ends it.
func (o *operator) recordEvents(ctx context.Context) (events.EventRecorder, func(), error) {
	sink, err := eventsclient.NewForConfig(o.config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of events: %w", err)
	}
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), kubescheme.AddToScheme(kinds)); err != nil {
		return nil, nil, fmt.Errorf("list the kinds that events name: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: sink})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("start recording events: %w", err)
	}
	return broadcaster.NewRecorder(kinds, "postgres-operator"), broadcaster.Shutdown, nil
}

func orAll(namespace string) string {
	if namespace == "" {
		return "all"
	}
	return namespace
}
