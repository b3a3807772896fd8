package conditions

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxNamedFields is how many of the missing fields a message names.
const maxNamedFields = 5

// SetCRDOutdated sets the condition CRDOutdated if fields are missing in the CustomResourceDefinition of ClusterPolicy
// or of NVIDIADriver in the cluster: the API server drops them silently. It removes the condition if none are.
func SetCRDOutdated(status *v1.ClusterPolicyStatus, ofPolicies, ofDrivers []string, namespace string) {
	var dropped []string
	if len(ofPolicies) > 0 {
		dropped = append(dropped, text.Named(ofPolicies, maxNamedFields)+" from ClusterPolicies")
	}
	if len(ofDrivers) > 0 {
		dropped = append(dropped, text.Named(ofDrivers, maxNamedFields)+" from NVIDIADrivers")
	}
	if len(dropped) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionCRDOutdated)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionCRDOutdated, Status: metav1.ConditionTrue, Reason: v1.ConditionCRDOutdated,
		Message: text.Truncate(fmt.Sprintf(
			"the CustomResourceDefinition is older than the operator: the API server drops %s, "+
				"and the operator applies no edit of them. To update it, %s, then set the dropped fields again",
			strings.Join(dropped, " and "), crdUpdateCommand(namespace)), MaxMessage),
		ObservedGeneration: status.ObservedGeneration,
	})
}

// DriversUnreadMessage returns why NVIDIADriver objects are not used: fields are missing in the cluster's
// CustomResourceDefinition.
func DriversUnreadMessage(missing []string, namespace string) string {
	return fmt.Sprintf("the CustomResourceDefinition of NVIDIADriver is older than the operator and does not have %s, so "+
		"that drivers stay as they are: %s", text.Named(missing, maxNamedFields), crdUpdateCommand(namespace))
}

// FrozenMessage returns why the operator changes nothing: fields of the spec are missing in the cluster's
// CustomResourceDefinition. dropped are those that the policy sets. If it sets none, the API server may have dropped
// them already.
func FrozenMessage(missing, dropped []string, namespace string) string {
	cause := fmt.Sprintf("does not have %s, and this ClusterPolicy is not the one that was last applied: "+
		"fields may have been dropped", text.Named(missing, maxNamedFields))
	if len(dropped) > 0 {
		cause = fmt.Sprintf("does not have %s, which this ClusterPolicy sets: the next write drops them",
			text.Named(dropped, maxNamedFields))
	}
	return fmt.Sprintf("the CustomResourceDefinition is older than the operator and %s. "+
		"The operator changes nothing, and adds no operands to nodes that join after it restarts. "+
		"To update the definition, %s", cause, crdUpdateCommand(namespace))
}

// crdUpdateCommand returns the remedy.
func crdUpdateCommand(namespace string) string {
	return fmt.Sprintf("run kubectl -n %s exec deploy/gpu-operator -- /gpu-operator print-crd | "+
		"kubectl apply --server-side --force-conflicts -f -", namespace)
}
