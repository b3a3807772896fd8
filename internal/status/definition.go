package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// maxNamedFields is how many of the fields that a definition lacks are named.
const maxNamedFields = 5

// setCRDOutdated tells of fields that the definition in the cluster lacks: whoever sets one finds it gone,
// and nobody says so. Where it lacks none, there is no such condition.
func setCRDOutdated(status *v1.ClusterPolicyStatus, missing []string, namespace string) {
	if len(missing) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionCRDOutdated)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionCRDOutdated, Status: metav1.ConditionTrue, Reason: v1.ConditionCRDOutdated,
		Message: text.Truncate(fmt.Sprintf("the CustomResourceDefinition is older than the operator, and the API server drops %s from policies, "+
			"of which no edit is applied until then: %s, then set what was dropped again", joinFields(missing), crdUpdateCommand(namespace)), maxConditionMessage),
		ObservedGeneration: status.ObservedGeneration,
	})
}

// FrozenMessage tells why nothing is changed: the definition lacks fields of the spec, of which this policy sets those that are
// dropped. Where it sets none, it may have.
func FrozenMessage(missing, dropped []string, namespace string) string {
	cause := fmt.Sprintf("lacks %s, and this ClusterPolicy is not the one that was last applied: it may have been cut down", joinFields(missing))
	if len(dropped) > 0 {
		cause = fmt.Sprintf("lacks %s, which this ClusterPolicy sets: any write of it loses that", joinFields(dropped))
	}
	return fmt.Sprintf("the CustomResourceDefinition is older than the operator and %s. Nothing is changed, and nodes that join after a restart of the operator "+
		"are left alone, until the definition is renewed: %s", cause, crdUpdateCommand(namespace))
}

// named are the first few of the fields, and how many more there are.
func joinFields(fields []string) string {
	if len(fields) <= maxNamedFields {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:maxNamedFields], ", "), len(fields)-maxNamedFields)
}

// crdUpdateCommand is what to do about it.
func crdUpdateCommand(namespace string) string {
	return fmt.Sprintf("run kubectl -n %s exec deploy/gpu-operator -- /gpu-operator print-crd | kubectl apply --server-side --force-conflicts -f -", namespace)
}
