package conditions

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func TestCRDOutdated(t *testing.T) {
	status := v1.ClusterPolicyStatus{}
	SetCRDOutdated(&status, []string{"spec.a", "spec.b", "spec.c", "spec.d", "spec.e", "spec.f", "spec.g"},
		[]string{"spec.x"}, "gpus")
	condition := meta.FindStatusCondition(status.Conditions, "CRDOutdated")
	if condition == nil || condition.Status != "True" {
		t.Fatalf("conditions: %v", status.Conditions)
	}
	for _, part := range []string{
		"drops spec.a, spec.b, spec.c, spec.d, spec.e and 2 more from ClusterPolicies and spec.x from NVIDIADrivers",
		"kubectl -n gpus exec deploy/gpu-operator -- /gpu-operator print-crd | kubectl apply --server-side " +
			"--force-conflicts -f -",
	} {
		if !strings.Contains(condition.Message, part) {
			t.Errorf("%q does not contain %q", condition.Message, part)
		}
	}
	for want, message := range map[string]string{
		"does not have spec.a, which this ClusterPolicy sets: the next write drops them": FrozenMessage(
			[]string{"spec.a", "spec.b"}, []string{"spec.a"}, "gpus"),
		"does not have spec.a, spec.b, and this ClusterPolicy is not the one that was last applied": FrozenMessage(
			[]string{"spec.a", "spec.b"}, nil, "gpus"),
		"does not have spec.x, so that drivers stay as they are": DriversUnreadMessage([]string{"spec.x"}, "gpus"),
	} {
		if !strings.Contains(message, want) || !strings.Contains(message, "kubectl -n gpus exec") {
			t.Errorf("%q does not contain %q", message, want)
		}
	}
	SetCRDOutdated(&status, nil, nil, "gpus")
	if len(status.Conditions) != 0 {
		t.Errorf("no field is missing, and the conditions are %v", status.Conditions)
	}
}
