package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// provisionerName is what StorageClasses and PersistentVolumes name.
const provisionerName = "pgop.local/xfs"

// workers bounds how many volumes are made at the same time.
const workers = 8

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an administrator of the cluster")
	root := flag.String("root", "", "directory that holds the volumes")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *root); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, which is no error.
func run(ctx context.Context, kubeconfig, root string) error {
	store, err := openDisks(root)
	if err != nil {
		return err
	}
	config, err := clientConfig(kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client from %s: %w", kubeconfig, err)
	}
	return serve(ctx, client, store)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// The default of five requests a second would be what volumes wait for.
	config.QPS = -1
	return config, nil
}

func serve(ctx context.Context, client kubernetes.Interface, store *disks) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	pvs := factory.Core().V1().PersistentVolumes()
	resizer := newResizer(ctx, client, claims, pvs, store)
	provisioning := controller.NewProvisionController(ctx, client, provisionerName, &volumes{store: store},
		controller.LeaderElection(false),
		controller.ClaimsInformer(claims.Informer()),
		controller.VolumesInformer(pvs.Informer()),
		controller.ResyncPeriod(0),
		controller.Threadiness(workers),
		controller.RateLimiter(retries()),
		// A volume that could not be reported stays, and is reported later.
		controller.CreateProvisionedPVLimiter(retries()),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
	)

	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read %s: %w", informer, context.Cause(ctx))
		}
	}
	if err := restore(ctx, store, pvs.Lister()); err != nil {
		return err
	}
	if err := applyClasses(ctx, client.StorageV1()); err != nil {
		return err
	}
	go resizer.run(ctx)
	provisioning.Run(ctx)
	return nil
}

// retries are quick, since a local disk is either there at once or broken.
func retries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)
}
