package instance

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/pgop/postgres-operator/pkg/instanceapi"
)

func TestServingSliceKeepsWhatIsTheOperators(t *testing.T) {
	o := Options{Instance: "shop-1", Namespace: "test", PodUID: "u", PodIP: "10.0.0.1", NodeName: "node-1", Port: 5432}
	slice := &discoveryv1.EndpointSlice{}
	slice.Labels = map[string]string{"kubernetes.io/service-name": "shop-rw"}
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("postgres"), Port: ptr.To[int32](6432)}}
	got := servingSlice(slice, o, 4)
	if len(got.Endpoints) != 1 || got.Endpoints[0].Addresses[0] != "10.0.0.1" || *got.Endpoints[0].NodeName != "node-1" ||
		got.Endpoints[0].TargetRef.Name != "shop-1" || *got.Ports[0].Port != 6432 || got.Labels["kubernetes.io/service-name"] != "shop-rw" {
		t.Errorf("slice: %+v", got)
	}
	if sliceTerm(got) != 4 || got.Annotations[instanceapi.SlicePodAnnotation] != "u" || len(slice.Endpoints) != 0 {
		t.Errorf("annotations %v; the original was changed: %v", got.Annotations, slice.Endpoints)
	}
	if got := servingSlice(&discoveryv1.EndpointSlice{}, o, 1); *got.Ports[0].Name != "postgres" || *got.Ports[0].Port != 5432 {
		t.Errorf("missing ports are not set: %+v", got.Ports)
	}
}

func TestNobodyReplacesAHigherTerm(t *testing.T) {
	a := &Agent{options: Options{PodUID: "u", Cluster: "shop"}, view: &view{wake: func() {}}}
	if a.sliceIsWrong(3) {
		t.Error("there is something to write before the operator has created it")
	}
	slice := &discoveryv1.EndpointSlice{}
	slice.Annotations = map[string]string{instanceapi.SliceTermAnnotation: "4"}
	a.view.SawSlice(slice)
	if a.sliceIsWrong(3) {
		t.Error("a lower term has something to write")
	}
	if err := a.serveInSlice(t.Context(), 3); err == nil {
		t.Error("a lower term writes")
	}
	if !a.sliceIsWrong(5) {
		t.Error("a higher term has nothing to write")
	}
}
