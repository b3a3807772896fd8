package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// namedFields is how many of the fields that a definition lacks are named.
const namedFields = 5

// setDefinition tells of fields that the definition in the cluster lacks: whoever sets one finds it gone,
// and nobody says so. Where it lacks none, there is no such condition.
func setDefinition(status *v1.ClusterPolicyStatus, lacking []string, namespace string) {
	if len(lacking) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1.ConditionCRDOutdated)
		return
	}
	named, more := lacking, ""
	if len(lacking) > namedFields {
		named, more = lacking[:namedFields], fmt.Sprintf(" and %d more", len(lacking)-namedFields)
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1.ConditionCRDOutdated, Status: metav1.ConditionTrue, Reason: v1.ConditionCRDOutdated,
		Message: truncate(fmt.Sprintf("the CustomResourceDefinition is older than the operator, and the API server drops %s%s from policies: "+
			"run kubectl -n %s exec deploy/gpu-operator -- /gpu-operator print-crd | kubectl apply --server-side --force-conflicts -f -, "+
			"then set what was dropped again", strings.Join(named, ", "), more, namespace), maxConditionMessage),
		ObservedGeneration: status.ObservedGeneration,
	})
}
