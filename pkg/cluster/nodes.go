package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	v1 "github.com/pgop/postgres-operator/pkg/apis/postgres/v1"
	"github.com/pgop/postgres-operator/pkg/specs"
)

// nodePatience is for how long the scheduler finds no node for a pod before its
// volume may count as lost with a node: one that is made anew under its name, as
// when a machine is set up again, has that time to come.
const nodePatience = time.Minute

// selectedNodeAnnotation is where the scheduler wants a claim's volume to be made.
const selectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// lookForLostNodes notes of each instance whether its volume went with a node.
// What a claim is bound to never changes, so that one question for each will do.
func (l *Loop) lookForLostNodes(ctx context.Context, o *Observation) {
	if l.Listers.Nodes == nil {
		return // nobody may look at nodes
	}
	for n := range o.Instances {
		i := &o.Instances[n]
		if i.Volume == nil || l.homeless.last(i.Volume.UID, mayHaveLostNode(*i), o.Now) < nodePatience {
			continue
		}
		for _, claim := range i.claims() {
			l.lookForLostNode(ctx, i, claim)
		}
	}
}

// lookForLostNode notes of the instance whether one of its volumes went with a
// node.
func (l *Loop) lookForLostNode(ctx context.Context, i *Instance, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName == "" {
		return
	}
	nodes, known := l.boundTo[claim.UID]
	if !known {
		var err error
		if nodes, err = nodesOfClaim(ctx, l.Kube.Core.PersistentVolumes(), claim); err != nil {
			i.LostNodeError = err.Error() // the next pass asks again
			return
		}
		l.boundTo[claim.UID] = nodes
	}
	if len(nodes) > 0 && !anyExists(l.Listers.Nodes, nodes) {
		i.LostNode = strings.Join(nodes, " or ")
	}
}

// mayHaveLostNode says whether the instance has a volume, and its pod no node
// that could use it, as far as the scheduler has looked.
func mayHaveLostNode(i Instance) bool {
	if i.Volume == nil || i.volumeIsLeaving() || i.Pod == nil || i.podIsLeaving() || i.isScheduled() {
		return false
	}
	return slices.ContainsFunc(i.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}

// nodesOfClaim are the nodes on which alone the claim's volume can be used; none
// if it can be used elsewhere, too.
func nodesOfClaim(ctx context.Context, volumes coreclient.PersistentVolumeInterface, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	selected := claim.Annotations[selectedNodeAnnotation]
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && selected != "":
		return []string{selected}, nil // whoever cleans up after nodes has deleted it
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up the PersistentVolume of %s: %w", claim.Name, err)
	}
	return nodesNamedBy(volume, selected), nil
}

// nodesNamedBy are the nodes that the volume is bound to by their names. A zone
// or the like is none: its volumes outlive its nodes.
func nodesNamedBy(volume *corev1.PersistentVolume, selected string) []string {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var nodes []string
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		named := nodesInTerm(term, selected)
		if len(named) == 0 {
			return nil // terms are alternatives: by this one it can be used elsewhere
		}
		nodes = append(nodes, named...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// nodesInTerm are the nodes that a term names: by the key for names or that for
// hosts, or by a key of the driver's own whose value is the node that was
// selected.
func nodesInTerm(term corev1.NodeSelectorTerm, selected string) []string {
	for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
		isName := r.Key == metav1.ObjectNameField || r.Key == corev1.LabelHostname || len(r.Values) == 1 && r.Values[0] == selected
		if r.Operator == corev1.NodeSelectorOpIn && isName {
			return r.Values
		}
	}
	return nil
}

// anyExists says whether one of the nodes is there, ready or not, by its name or
// its host's.
func anyExists(l corelisters.NodeLister, names []string) bool {
	nodes, _ := l.List(labels.Everything()) // a cache can't fail
	return slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
		return slices.Contains(names, n.Name) || slices.Contains(names, n.Labels[corev1.LabelHostname])
	})
}

// isGivenUp says whether the operator has decided to go on without the instance:
// its volume went with its node, and never so the one that reigns, or it was set
// aside for a restore.
func (o Observation) isGivenUp(i Instance) bool {
	if i.Volume != nil && specs.IsSetAside(i.Volume) {
		return true
	}
	return i.Volume != nil && specs.LostNode(i.Volume, o.Cluster) != "" && i.Name != o.primaryName()
}

// giveUpLostInstances marks the claim of an instance whose volume went with its
// node. From the next pass on, another instance takes its place, and the claim is
// kept: the mark is the decision, which holds even if the node comes back. It
// waits until somebody else reigns, since the volume may be the only one that has
// what was committed, and until the replacement of the one before has its data.
func giveUpLostInstances(o Observation, p *Plan) {
	for _, name := range p.Members {
		i := find(o, name)
		switch {
		case i.LostNodeError != "":
			p.wait("whether the volume of %s went with its node can't be told: %s", name, i.LostNodeError)
		case i.LostNode == "":
		case name == o.primaryName() || !o.primaryServes():
			p.wait("%s is not replaced before another instance serves as the primary, although its volume went with node %s", name, i.LostNode)
		case firstEmpty(o, p) != "":
			p.wait("%s, whose volume went with node %s, is replaced when %s has its data", name, i.LostNode, firstEmpty(o, p))
		case p.givesUp():
			p.wait("%s, whose volume went with node %s, is replaced next", name, i.LostNode)
		default:
			p.Actions = append(p.Actions, Action{
				Verb: Update, Object: specs.GiveUpVolume(i.Volume, i.LostNode), Reason: v1.ReasonNodeLost,
				Note: fmt.Sprintf("instance %s is replaced: its volume went with node %s, which is gone. %s", name, i.LostNode, describeKept(i.allClaims())),
			})
		}
	}
}

// describeKept says that claims are kept.
func describeKept(claims []*corev1.PersistentVolumeClaim) string {
	if len(claims) == 1 {
		return fmt.Sprintf("The PersistentVolumeClaim %s is kept and not used any more; delete it when you need nothing of it", claims[0].Name)
	}
	return fmt.Sprintf("The PersistentVolumeClaims %s are kept and not used any more; delete them when you need nothing of them", namesOf(claims))
}

// namesOf joins the names of volumes to a phrase.
func namesOf(claims []*corev1.PersistentVolumeClaim) string {
	var names []string
	for _, claim := range claims {
		names = append(names, claim.Name)
	}
	return strings.Join(names, " and ")
}

// firstEmpty is an instance that is to copy the primary and has not done so, as
// far as is known; or nobody.
func firstEmpty(o Observation, p *Plan) string {
	for _, name := range p.Members {
		i := find(o, name)
		if i.LostNode == "" && !i.isReady() && (i.State == nil || !i.State.HasData) {
			return name
		}
	}
	return ""
}

// givesUp says whether an instance is given up in this very pass.
func (p *Plan) givesUp() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Reason == v1.ReasonNodeLost })
}

// describeGivenUp names the volumes that are kept of instances that were
// replaced, or is empty.
func describeGivenUp(o Observation) string {
	var kept []string
	for _, i := range slices.Concat(o.Instances, o.Spares) {
		if o.isGivenUp(i) {
			why := "went with node " + specs.LostNode(i.Volume, o.Cluster)
			if specs.IsSetAside(i.Volume) {
				why = "from before PostgresRestore " + specs.SetAsideBy(i.Volume)
			}
			kept = append(kept, fmt.Sprintf("%s (%s)", namesOf(i.allClaims()), why))
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return "volumes of instances that were replaced are kept and not used; delete those of which you need nothing: " + strings.Join(kept, ", ")
}
