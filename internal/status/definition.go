package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// maxNamedFields is how many of the missing fields a message names.
const maxNamedFields = 5

// setCRDOutdated sets the condition CRDOutdated if fields are missing in the CustomResourceDefinition in the cluster:
// the API server drops them silently. It removes the condition if none are.
func setCRDOutdated(status *v1.ClusterPolicyStatus, missing []string, namespace string) {
	if len(missing) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionCRDOutdated)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionCRDOutdated, Status: metav1.ConditionTrue, Reason: v1.ConditionCRDOutdated,
		Message: text.Truncate(fmt.Sprintf(
			"the CustomResourceDefinition is older than the operator, and the API server drops %s from policies, "+
				"of which no edit is applied until then: %s, then set what was dropped again",
			joinFields(missing), crdUpdateCommand(namespace)), maxConditionMessage),
		ObservedGeneration: status.ObservedGeneration,
	})
}

// FrozenMessage returns why the operator changes nothing: the CustomResourceDefinition has not all fields of the spec.
// dropped are the missing ones that the policy sets. If it sets none, the API server may have dropped them already.
func FrozenMessage(missing, dropped []string, namespace string) string {
	cause := fmt.Sprintf("lacks %s, and this ClusterPolicy is not the one that was last applied: "+
		"it may have been cut down", joinFields(missing))
	if len(dropped) > 0 {
		cause = fmt.Sprintf("lacks %s, which this ClusterPolicy sets: any write of it loses that", joinFields(dropped))
	}
	return fmt.Sprintf("the CustomResourceDefinition is older than the operator and %s. "+
		"Nothing is changed, and nodes that join after a restart of the operator are left alone, "+
		"until the definition is renewed: %s", cause, crdUpdateCommand(namespace))
}

// joinFields names the first few of the fields, and counts the others.
func joinFields(fields []string) string {
	if len(fields) <= maxNamedFields {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:maxNamedFields], ", "), len(fields)-maxNamedFields)
}

// crdUpdateCommand returns the remedy.
func crdUpdateCommand(namespace string) string {
	return fmt.Sprintf("run kubectl -n %s exec deploy/gpu-operator -- /gpu-operator print-crd | "+
		"kubectl apply --server-side --force-conflicts -f -", namespace)
}
