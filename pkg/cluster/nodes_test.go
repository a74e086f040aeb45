package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// fakeVolumes answers each Get with the same, and counts.
type fakeVolumes struct {
	coreclient.CoreV1Interface
	coreclient.PersistentVolumeInterface
	volume *corev1.PersistentVolume
	err    error
	asked  int
}

func (f *fakeVolumes) PersistentVolumes() coreclient.PersistentVolumeInterface { return f }

func (f *fakeVolumes) Get(context.Context, string, metav1.GetOptions) (*corev1.PersistentVolume, error) {
	f.asked++
	return f.volume, f.err
}

// boundTo is a volume whose node affinity has these terms, of one requirement
// each.
func boundTo(terms ...corev1.NodeSelectorRequirement) *corev1.PersistentVolume {
	selector := &corev1.NodeSelector{}
	for _, r := range terms {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}}
		if r.Key == metav1.ObjectNameField {
			term = corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{r}}
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: selector}}}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// A volume is lost with a node only when it can be used on no other, and the Node
// object is gone: one that is not ready is there.
func TestWhichVolumesWentWithTheirNode(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumes"}, "pv")
	cases := []struct {
		why      string
		volume   *corev1.PersistentVolume
		err      error
		selected string
		want     string
	}{
		{why: "the host is gone", volume: boundTo(in(corev1.LabelHostname, "gone")), want: "gone"},
		{why: "the node is gone by name", volume: boundTo(in(metav1.ObjectNameField, "gone")), want: "gone"},
		{why: "a driver's own key names the node that was selected", volume: boundTo(in("topology.example.com/node", "gone")), selected: "gone", want: "gone"},
		{why: "a driver's own key, and nobody selected a node", volume: boundTo(in("topology.example.com/node", "gone"))},
		{why: "the host is there", volume: boundTo(in(corev1.LabelHostname, "host-1"))},
		{why: "the node is there, and has another host name", volume: boundTo(in(metav1.ObjectNameField, "node-1"))},
		{why: "the node is there, and not ready", volume: boundTo(in(corev1.LabelHostname, "not-ready"))},
		{why: "one of two hosts is there", volume: boundTo(in(corev1.LabelHostname, "gone", "host-1"))},
		{why: "both hosts are gone", volume: boundTo(in(corev1.LabelHostname, "gone", "gone-too")), want: "gone or gone-too"},
		{why: "one of two alternatives is there", volume: boundTo(in(corev1.LabelHostname, "gone"), in(corev1.LabelHostname, "host-1"))},
		{why: "by one of two alternatives any node of a zone will do", volume: boundTo(in(corev1.LabelHostname, "gone"), in(corev1.LabelTopologyZone, "a"))},
		{why: "a disk of a zone, which was made for a node that is gone", volume: boundTo(in(corev1.LabelTopologyZone, "a")), selected: "gone"},
		{why: "any node but one", volume: boundTo(corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"gone"}})},
		{why: "a disk for every node", volume: &corev1.PersistentVolume{}, selected: "gone"},
		{why: "the volume was deleted after its node", err: notFound, selected: "gone", want: "gone"},
		{why: "the volume was deleted, and its node is there", err: notFound, selected: "node-1"},
		{why: "the volume was deleted, and nobody knows its node", err: notFound},
	}
	for _, c := range cases {
		l, o := lonely(&fakeVolumes{volume: c.volume, err: c.err}, c.selected)
		l.lookForLostNodes(t.Context(), &o)
		if i := o.Instances[0]; i.LostNode != c.want || i.LostNodeError != "" {
			t.Errorf("%s: lost with %q, want %q; %s", c.why, i.LostNode, c.want, i.LostNodeError)
		}
	}
}

// Volumes are looked up only when a pod has found no node for a while, and once.
func TestVolumesAreLookedUpWhenAPodFindsNoNode(t *testing.T) {
	cases := []struct {
		why   string
		edit  func(*Loop, *Observation)
		asked int
	}{
		{"the pod finds no node", func(*Loop, *Observation) {}, 1},
		{"the pod has found no node just now", func(l *Loop, _ *Observation) { clear(l.homeless) }, 0},
		{"the pod has a node", func(_ *Loop, o *Observation) { o.Instances[0].Pod.Spec.NodeName = "gone" }, 0},
		{"the scheduler has not said anything", func(_ *Loop, o *Observation) { o.Instances[0].Pod.Status.Conditions = nil }, 0},
		{"the pod is leaving", func(_ *Loop, o *Observation) { o.Instances[0].Pod.DeletionTimestamp = &metav1.Time{} }, 0},
		{"there is no pod", func(_ *Loop, o *Observation) { o.Instances[0].Pod = nil }, 0},
		{"the claim is leaving", func(_ *Loop, o *Observation) { o.Instances[0].Volume.DeletionTimestamp = &metav1.Time{} }, 0},
		{"the claim has no volume", func(_ *Loop, o *Observation) { o.Instances[0].Volume.Spec.VolumeName = "" }, 0},
		{"nobody may look at nodes", func(l *Loop, _ *Observation) { l.Listers.Nodes = nil }, 0},
	}
	for _, c := range cases {
		volumes := &fakeVolumes{volume: boundTo(in(corev1.LabelHostname, "gone"))}
		l, o := lonely(volumes, "")
		c.edit(l, &o)
		for range 3 {
			l.lookForLostNodes(t.Context(), &o)
		}
		if lost := o.Instances[0].LostNode != ""; volumes.asked != c.asked || lost != (c.asked > 0) {
			t.Errorf("%s: asked %d times, want %d; lost: %v", c.why, volumes.asked, c.asked, lost)
		}
	}
}

// Who may not look volumes up says so, decides nothing, and asks again.
func TestVolumesThatCantBeLookedUp(t *testing.T) {
	volumes := &fakeVolumes{err: errors.New("forbidden")}
	l, o := lonely(volumes, "gone")
	l.lookForLostNodes(t.Context(), &o)
	l.lookForLostNodes(t.Context(), &o)
	want := "look up the PersistentVolume of shop-2: forbidden"
	if i := o.Instances[0]; i.LostNode != "" || i.LostNodeError != want || volumes.asked != 2 {
		t.Errorf("%+v, asked %d times", i, volumes.asked)
	}
	w := settledWorld(3)
	o = w.observe()
	o.Instances[1].LostNodeError = want
	p := Analyse(o)
	if diff := cmp.Diff([]string{"whether the volume of shop-2 went with its node can't be told: " + want}, p.Waits); diff != "" || len(p.Actions) > 0 {
		t.Errorf("%v\n%s", p.Actions, diff)
	}
}

// lonely is a loop, and what it sees of an instance whose pod finds no node.
func lonely(volumes *fakeVolumes, selected string) (*Loop, Observation) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, host := range map[string]string{"node-1": "host-1", "not-ready": "not-ready"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: host}}}
		if err := nodes.Add(node); err != nil {
			panic(err)
		}
	}
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "shop-2", UID: "claim-2"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	if selected != "" {
		claim.Annotations = map[string]string{selectedNodeAnnotation: selected}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
	}}}}
	l := &Loop{Deps: Deps{Kube: Kube{Core: volumes}, Listers: Listers{Nodes: corelisters.NewNodeLister(nodes)}}, boundTo: map[types.UID][]string{},
		homeless: sightings{claim.UID: now.Add(-nodePatience)}}
	return l, Observation{Now: now, Instances: []Instance{{Name: "shop-2", Number: 2, Volume: claim, Pod: pod}}}
}
