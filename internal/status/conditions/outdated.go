package conditions

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxNamedNodes is how many nodes a message names for each version.
const maxNamedNodes = 3

// OutdatedVersion is a version of a component with known vulnerabilities, and where it is.
type OutdatedVersion struct {
	safeversion.Outdated
	// InSpec: the spec, or a default of the operator, asks for it.
	InSpec bool
	// Nodes that run it, as far as they report it.
	Nodes []string
}

// SetOutdatedComponents sets the condition OutdatedComponent for these versions, in their order, and removes it if
// there are none.
func SetOutdatedComponents(status *v1.ClusterPolicyStatus, outdated []OutdatedVersion) {
	if len(outdated) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionOutdatedComponent)
		return
	}
	var notes []string
	for _, version := range outdated {
		notes = append(notes, fmt.Sprintf("%s %s (%s) is %s: %s", version.Component, version.Version, version.places(),
			version.Why(), version.Remedy()))
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionOutdatedComponent, Status: metav1.ConditionTrue, Reason: v1.ReasonOutdatedComponent,
		Message:            text.Truncate(strings.Join(notes, "; "), MaxMessage),
		ObservedGeneration: status.ObservedGeneration,
	})
}

func (o OutdatedVersion) places() string {
	var places []string
	if o.InSpec {
		places = append(places, "in the spec")
	}
	switch count := len(o.Nodes); {
	case count == 1:
		places = append(places, "on "+o.Nodes[0])
	case count > 1:
		places = append(places, fmt.Sprintf("on %d nodes: %s", count, text.Named(o.Nodes, maxNamedNodes)))
	}
	return strings.Join(places, ", ")
}
