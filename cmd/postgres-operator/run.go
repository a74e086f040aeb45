package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/pgop/postgres-operator/deploy"
	"github.com/pgop/postgres-operator/pkg/cluster"
	"github.com/pgop/postgres-operator/pkg/controller"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned"
	"github.com/pgop/postgres-operator/pkg/generated/clientset/versioned/scheme"
)

// operatorFlags are the flags of `run`.
type operatorFlags struct {
	kubeconfig string
	namespace  string
	image      string
	createCRD  bool
	probes     string
	logLevel   string
}

func parseOperatorFlags(args []string) (operatorFlags, error) {
	var f operatorFlags
	set := flag.NewFlagSet("run", flag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig, to run outside of the cluster; default: the pod's service account")
	set.StringVar(&f.namespace, "namespace", os.Getenv("WATCH_NAMESPACE"), "the namespace to watch; default: all (environment WATCH_NAMESPACE)")
	set.StringVar(&f.image, "image", os.Getenv("OPERATOR_IMAGE"), "image of this operator, from which instances get their agent (environment OPERATOR_IMAGE)")
	set.BoolVar(&f.createCRD, "create-crd", true, "install the CRD and its admission policy at start")
	set.StringVar(&f.probes, "probe-listen", ":8080", "address of /healthz and /readyz")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warning or error")
	if err := parseFlags(set, args); err != nil {
		return f, err
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

func operate(ctx context.Context, f operatorFlags, config *rest.Config, log *logrus.Entry) error {
	kube, err := newKube(config)
	if err != nil {
		return err
	}
	sink, err := eventsclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client of events: %w", err)
	}
	// Custom resources have no protobuf form.
	custom := rest.CopyConfig(config)
	custom.ContentType, custom.AcceptContentTypes = "", ""
	postgres, err := versioned.NewForConfig(custom)
	if err != nil {
		return fmt.Errorf("make the client of PostgresClusters: %w", err)
	}
	if f.createCRD {
		extensions, err := apiextensions.NewForConfig(custom)
		if err != nil {
			return fmt.Errorf("make the client of CRDs: %w", err)
		}
		if err := controller.InstallCRD(ctx, extensions.ApiextensionsV1().CustomResourceDefinitions(), deploy.PostgresClusterCRD, log); err != nil {
			return err
		}
		admission, err := admissionclient.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("make the client of admission policies: %w", err)
		}
		if err := controller.InstallPolicy(ctx, admission, deploy.PostgresClusterPolicy, log); err != nil {
			return err
		}
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: sink})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording events: %w", err)
	}
	defer broadcaster.Shutdown()

	// Events are about clusters and name what they are made of.
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), kubescheme.AddToScheme(kinds)); err != nil {
		return fmt.Errorf("list the kinds that events name: %w", err)
	}
	c, err := controller.New(controller.Config{
		Kube:          kube,
		Postgres:      postgres,
		Events:        broadcaster.NewRecorder(kinds, "postgres-operator"),
		Log:           log,
		Namespace:     f.namespace,
		OperatorImage: f.image,
		Now:           time.Now,
	})
	if err != nil {
		return err
	}
	serveProbes(ctx, f.probes, log)
	log.WithFields(logrus.Fields{"version": version, "namespace": orAll(f.namespace)}).Info("operator starts")
	defer log.Info("operator has stopped")
	return c.Run(ctx)
}

// newKube makes the clients of the groups that clusters need.
func newKube(config *rest.Config) (cluster.Kube, error) {
	core, err1 := coreclient.NewForConfig(config)
	rbac, err2 := rbacclient.NewForConfig(config)
	coordination, err3 := coordinationclient.NewForConfig(config)
	discovery, err4 := discoveryclient.NewForConfig(config)
	policy, err5 := policyclient.NewForConfig(config)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return cluster.Kube{}, fmt.Errorf("make the clients of Kubernetes: %w", err)
	}
	return cluster.Kube{Core: core, RBAC: rbac, Coordination: coordination, Discovery: discovery, Policy: policy}, nil
}

// serveProbes answers until ctx ends. The operator is alive and ready as soon
// as it runs: what it can't reach, it tries again.
func serveProbes(ctx context.Context, address string, log *logrus.Entry) {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /healthz", answer)
	mux.HandleFunc("GET /readyz", answer)
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			log.WithError(err).Error("can't serve probes")
		}
	}()
	context.AfterFunc(ctx, func() { server.Close() })
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server (flag --kubeconfig outside of a cluster): %w", err)
	}
	config.UserAgent = "postgres-operator/" + version
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// The queue limits how much is done at once; the client's own limit of five
	// requests a second would only make clusters wait for each other.
	config.QPS, config.Burst = 100, 200
	return config, nil
}

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

func orAll(namespace string) string {
	if namespace == "" {
		return "all"
	}
	return namespace
}
