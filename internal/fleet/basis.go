package fleet

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// Basis is what all nodes are assessed by. It is not changed once it is published.
type Basis struct {
	// Policy in force, nil where there is none.
	Policy *v1.ClusterPolicy
	// Decisions of its spec and what that refers to, nil where there is no policy, or it is not known what it says.
	Decisions *plan.Decisions
	// KeepNodes: there are no Decisions, and nodes keep what they have all the same, as their labels select pods that run on:
	// those of DaemonSets whose policy is gone, or of a policy of which it is not known what it says.
	KeepNodes bool
	// Stack is what the cluster has of it.
	Stack assess.Stack

	// Version counts what was published; Since is when this was.
	Version uint64
	Since   time.Time
	// selectors are the labels that the spec selects nodes by.
	selectors   map[string]bool
	fingerprint map[string]fingerprint
}

// Paused reports whether no node is to be written.
func (b *Basis) Paused() bool { return b.Decisions != nil && b.Decisions.Input.Paused() }

// Selects reports whether the spec selects nodes by this label.
func (b *Basis) Selects(label string) bool { return b.selectors[label] }

// fingerprint is what verdicts on nodes follow from in a DaemonSet: not how its pods are.
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

// equals reports whether nodes are assessed alike by both.
func (b *Basis) equals(other *Basis) bool {
	return other != nil && b.Decisions == other.Decisions && b.KeepNodes == other.KeepNodes && maps.Equal(b.fingerprint, other.fingerprint) &&
		maps.Equal(b.Stack.CreateFailures, other.Stack.CreateFailures)
}
