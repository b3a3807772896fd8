package upgrade

import (
	"errors"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// An eviction that the API server rejects is tried again; any other error is a failure of the call.
func TestWhyAnEvictionIsRejected(t *testing.T) {
	answer := func(code int32, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: message, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	budget := func(message string) metav1.StatusCause {
		return metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message}
	}
	other := metav1.StatusCause{Type: "Other", Message: "The disruption budget other is not the cause"}
	withoutDetails := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 429}}
	const evicts = "The disruption budget web needs 2 healthy pods and has 2 currently"
	const ofBudget = "PDB team-a/web allows 0 disruptions"
	long, cut := strings.Repeat("a", 81), strings.Repeat("a", 77)+"..."
	for name, test := range map[string]struct {
		err error
		// want is empty for an error that is no rejection.
		want string
	}{
		"none":                             {nil, ""},
		"no answer":                        {errors.New("connection refused"), ""},
		"a budget":                         {answer(429, "x", budget(evicts)), ofBudget},
		"a budget among other causes":      {answer(429, "x", other, budget(evicts)), ofBudget},
		"a budget that is not observed":    {answer(429, "x", budget("disruption budget web.")), ofBudget},
		"a budget without its name":        {answer(429, "x", budget("it needs 2 pods")), "a PDB allows 0 disruptions"},
		"a server that has too many calls": {answer(429, "too many requests"), ""},
		"one that says no more":            {withoutDetails, ""},
		"several budgets": {
			answer(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
			"several PDBs select it, which the eviction API does not support",
		},
		"a failure of the server":    {answer(500, "internal error"), ""},
		"a pod that is gone":         {answer(404, "not found"), ""},
		"a policy":                   {answer(403, "not on Mondays"), "eviction rejected: not on Mondays"},
		"a webhook":                  {answer(400, "not now"), "eviction rejected: not now"},
		"a webhook with a long text": {answer(403, long), "eviction rejected: " + cut},
	} {
		t.Run(name, func(t *testing.T) {
			reason, rejected := rejectionReason(&upgrade.WorkloadPod{Namespace: "team-a", Name: "web-1"}, test.err)
			if reason != test.want || rejected != (test.want != "") {
				t.Errorf("got %q, rejected: %t, want %q", reason, rejected, test.want)
			}
		})
	}
}
