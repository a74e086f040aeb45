package instance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Deleted and created again at once (B-02), the new cluster's objects appear
// while agents of the earlier one still stop: those must not see them.
func TestB02AnAgentLeavesAnotherClustersObjectsAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		owner types.UID
		mine  bool
	}{
		{"the cluster's own", "mine", true},
		{"those of a later cluster of the name", "other", false},
		{"those of nobody", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(serveObjectsOf(c.owner))
			t.Cleanup(server.Close)
			kube, err := NewKubernetes(&rest.Config{Host: server.URL}, "test", "shop", "mine")
			must(t, err)

			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lease, err := kube.Lease(ctx)
			if c.mine != (err == nil && lease.Name == "shop") || !c.mine && !apierrors.IsNotFound(err) {
				t.Errorf("read the Lease: %v, %v", lease, err)
			}
			w := &sawWhat{seen: make(chan bool, 3)}
			go kube.Watch(ctx, w)
			for range cap(w.seen) {
				select {
				case mine := <-w.seen:
					if mine != c.mine {
						t.Errorf("shown an object: %v, want %v", mine, c.mine)
					}
				case <-ctx.Done():
					t.Fatal("not shown all three objects")
				}
			}
		})
	}
}

// A Secret of the user's is read by its name; one that is missing is told.
func TestSecretsOfTheUserAreRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/test/secrets/s3-login" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			Data: map[string][]byte{"access-key-id": []byte("me")}})
	}))
	t.Cleanup(server.Close)
	kube, err := NewKubernetes(&rest.Config{Host: server.URL}, "test", "shop", "mine")
	must(t, err)
	if secret, err := kube.Secret(t.Context(), "s3-login"); err != nil || string(secret["access-key-id"]) != "me" {
		t.Errorf("it holds %q (%v)", secret, err)
	}
	if _, err := kube.Secret(t.Context(), "another"); err == nil {
		t.Error("a Secret that is missing was read")
	}
}

// serveObjectsOf is an API server with the three objects of the cluster shop,
// which owner owns. Its watches never tell anything.
func serveObjectsOf(owner types.UID) http.Handler {
	meta := func(name string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Namespace: "test", ResourceVersion: "1"}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "PostgresCluster", Name: "shop", UID: owner, Controller: ptr.To(true)}}
		}
		return m
	}
	list := metav1.ListMeta{ResourceVersion: "1"}
	answers := map[string]any{
		"/apis/coordination.k8s.io/v1/namespaces/test/leases/shop": coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: meta("shop")},
		"/apis/coordination.k8s.io/v1/namespaces/test/leases": coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}, ListMeta: list,
			Items: []coordinationv1.Lease{{ObjectMeta: meta("shop")}}},
		"/api/v1/namespaces/test/configmaps": corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: list,
			Items: []corev1.ConfigMap{{ObjectMeta: meta("shop-config")}}},
		"/apis/discovery.k8s.io/v1/namespaces/test/endpointslices": discoveryv1.EndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: list,
			Items: []discoveryv1.EndpointSlice{{ObjectMeta: meta("shop-rw")}}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		switch {
		case !found:
			http.NotFound(w, r)
		case r.URL.Query().Has("sendInitialEvents"):
			http.Error(w, "no streaming lists here", http.StatusUnprocessableEntity)
		case r.URL.Query().Has("watch"):
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}
	})
}

// sawWhat is a Watcher that notes whether what it was shown was an object.
type sawWhat struct{ seen chan bool }

func (s *sawWhat) SawConfigMap(o *corev1.ConfigMap)      { s.seen <- o != nil }
func (s *sawWhat) SawLease(o *coordinationv1.Lease)      { s.seen <- o != nil }
func (s *sawWhat) SawSlice(o *discoveryv1.EndpointSlice) { s.seen <- o != nil }
