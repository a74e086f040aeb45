package cluster

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/election"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// EndedReign is a reign that is over.
type EndedReign struct {
	Instance string
	// Renewed is when its holder last wrote the Lease, by the holder's clock.
	Renewed time.Time
}

// Reigns remembers, for each cluster, the reign that it saw last, and when the
// one before was last renewed: the Lease says so no more. It serves to tell
// people how long there was no primary, and decides nothing.
type Reigns struct {
	mu    sync.Mutex
	seen  map[cache.ObjectName]EndedReign
	ended map[cache.ObjectName]EndedReign
}

// NewReigns makes a memory of no reign.
func NewReigns() *Reigns {
	return &Reigns{seen: map[cache.ObjectName]EndedReign{}, ended: map[cache.ObjectName]EndedReign{}}
}

// Saw is told of each state of a Lease, in their order.
func (r *Reigns) Saw(lease *coordinationv1.Lease) {
	key := cache.NewObjectName(lease.Namespace, lease.Labels[specs.ClusterLabel])
	now := EndedReign{
		Instance: election.ParseHolder(ptr.Deref(lease.Spec.HolderIdentity, "")).Instance,
		Renewed:  ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.seen[key]
	if now.Instance == "" {
		if now.Renewed.After(before.Renewed) {
			before.Renewed = now.Renewed // it was released in order, and served until then
			r.seen[key] = before
		}
		return
	}
	if before.Instance != "" && before.Instance != now.Instance {
		r.ended[key] = before
	}
	r.seen[key] = now
}

// lastOf is the last reign that ended; the zero one if this process saw none.
func (r *Reigns) lastOf(key cache.ObjectName) EndedReign {
	if r == nil {
		return EndedReign{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[key]
}
