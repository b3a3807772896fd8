package fleet

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Basis is what all nodes are assessed by. It is immutable once published.
type Basis struct {
	// Policy is the active one, without its status; nil for none.
	Policy *v1.ClusterPolicy
	// Decisions of its spec; nil without a policy or while its spec is unknown.
	Decisions *plan.Decisions
	// KeepNodes: without Decisions, nodes keep their labels, because the labels select pods that still run: those of
	// DaemonSets that a deleted policy has orphaned, or of a policy whose spec is unknown.
	KeepNodes bool
	// Removal is how the stack is removed from the nodes; nil unless the policy is deleted. There are no Decisions then.
	Removal *Removal
	// Stack as the cluster has it.
	Stack assess.Stack

	// Version increases with each Basis that is published; Since is when this one was.
	Version uint64
	Since   time.Time
	// selectors are the label keys in the spec's nodeSelectors.
	selectors   map[string]bool
	fingerprint map[string]fingerprint
}

// own replaces pointers to objects by pointers to copies, so that the lists that the objects were read with do not stay
// in memory as long as the Basis.
func (b *Basis) own() {
	if of := b.Policy; of != nil {
		b.Policy = &v1.ClusterPolicy{TypeMeta: of.TypeMeta, ObjectMeta: of.ObjectMeta, Spec: of.Spec}
	}
	if b.Stack.DaemonSets == nil {
		return
	}
	owned := make(map[string]*appsv1.DaemonSet, len(b.Stack.DaemonSets))
	for name, ds := range b.Stack.DaemonSets {
		owned[name] = new(*ds)
	}
	b.Stack.DaemonSets = owned
}

// Paused reports whether nodes must not be written.
func (b *Basis) Paused() bool { return b.Decisions != nil && b.Decisions.Input.Paused() }

// Selects reports whether the spec selects nodes by this label.
func (b *Basis) Selects(label string) bool { return b.selectors[label] }

// fingerprint has the fields of a DaemonSet that assessments depend on. Its status is not among them.
type fingerprint struct {
	uid             types.UID
	generation      int64
	digest, operand string
	deleted         bool
}

func fingerprints(daemonSets map[string]*appsv1.DaemonSet) map[string]fingerprint {
	found := make(map[string]fingerprint, len(daemonSets))
	for name, ds := range daemonSets {
		found[name] = fingerprint{
			uid: ds.UID, generation: ds.Generation, digest: ds.Annotations[labels.TemplateDigest],
			operand: ds.Labels[labels.Operand], deleted: ds.DeletionTimestamp != nil,
		}
	}
	return found
}

// equals reports whether both bases lead to the same assessments.
func (b *Basis) equals(other *Basis) bool {
	return other != nil && b.Decisions == other.Decisions && b.KeepNodes == other.KeepNodes &&
		same(b.Removal, other.Removal) &&
		maps.Equal(b.fingerprint, other.fingerprint) &&
		maps.Equal(b.Stack.CreateFailures, other.Stack.CreateFailures) &&
		maps.Equal(b.Stack.StartFailures, other.Stack.StartFailures)
}

// selectorKeys returns the label keys of all nodeSelectors of the spec and of NVIDIADriver objects.
func selectorKeys(catalogue operand.Catalogue, in operand.Input) map[string]bool {
	keys := map[string]bool{}
	for key := range in.Spec.DaemonSets.NodeSelector {
		keys[key] = true
	}
	for _, nodePool := range in.Spec.NodePools {
		for key := range nodePool.NodeSelector {
			keys[key] = true
		}
	}
	for _, driver := range in.NVIDIADrivers {
		for key := range driver.NodeSelector {
			keys[key] = true
		}
	}
	for i := range catalogue {
		for key := range in.PlacementOf(&catalogue[i]).NodeSelector {
			keys[key] = true
		}
	}
	return keys
}
