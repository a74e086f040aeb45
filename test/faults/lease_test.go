//go:build e2e

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/test/e2e/framework"
)

// leaseWatch looks at the cluster's Lease twice a second while a round lasts.
type leaseWatch struct {
	stop func()

	mu sync.Mutex
	// version is the Lease's last seen, and changed when it was first seen.
	version string
	changed time.Time
	// holders are those seen, one after the other.
	holders []string
}

func watchLease(f *framework.Framework) *leaseWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &leaseWatch{}
	done := make(chan struct{})
	w.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		for framework.Sleep(ctx, 500*time.Millisecond) == nil {
			w.look(ctx, f)
		}
	}()
	return w
}

func (w *leaseWatch) look(ctx context.Context, f *framework.Framework) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lease, err := f.Kube.CoordinationV1().Leases(f.Namespace).Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return // without an API server nothing is seen
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if lease.ResourceVersion != w.version {
		w.version, w.changed = lease.ResourceVersion, time.Now()
	}
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "/")
	if holder == "" {
		holder = "nobody"
	}
	if n := len(w.holders); n == 0 || w.holders[n-1] != holder {
		w.holders = append(w.holders, holder)
	}
}

// unchanged says for how long no change has been seen.
func (w *leaseWatch) unchanged() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.version == "" {
		return 0
	}
	return time.Since(w.changed)
}

// holder is the instance that holds the Lease.
func (w *leaseWatch) holder() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.holders) == 0 {
		return ""
	}
	return w.holders[len(w.holders)-1]
}

func (w *leaseWatch) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("held by %s", strings.Join(w.holders, ", then "))
}
