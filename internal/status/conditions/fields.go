package conditions

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

// chartNote comes before each note of the chart.
const chartNote = "values of the chart: "

// maxChartNotes bounds how many of them are shown.
const maxChartNotes = 16

// ChartNotes returns what the chart that wrote a policy notes about its values, which are not in the policy, a sentence
// each. Helm shows the notes of a subchart nowhere, and other installers those of no chart.
func ChartNotes(policy *v1.ClusterPolicy) []string {
	var notes []string
	for line := range strings.Lines(policy.Annotations[labels.ChartNotes]) {
		if line = strings.TrimSpace(line); line != "" && len(notes) < maxChartNotes {
			notes = append(notes, chartNote+strings.TrimSuffix(line, "."))
		}
	}
	return notes
}

// SetFieldNotes sets the conditions UnsupportedFields, which also reports the ignored variables, and
// DeprecatedFields. doubtful are the notes that do not follow from the spec alone.
func SetFieldNotes(
	status *v1.ClusterPolicyStatus, spec v1.ClusterPolicySpec, ignoredVariables, doubtful []string,
) {
	set := func(conditionType, reason string, notes []string) {
		condition := metav1.Condition{
			Type: conditionType, Status: metav1.ConditionFalse, Reason: v1.ReasonNone,
			ObservedGeneration: status.ObservedGeneration,
		}
		if len(notes) > 0 {
			condition.Status, condition.Reason = metav1.ConditionTrue, reason
			condition.Message = text.Truncate(strings.Join(notes, "; "), MaxMessage)
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	unsupported, reason := append(fieldnotes.Unsupported(spec), ignoredVariables...), v1.ReasonNotSupportedYet
	if len(unsupported) == 0 {
		reason = v1.ReasonDoubtfulFields
	}
	set(v1.ConditionUnsupportedFields, reason, slices.Concat(unsupported, fieldnotes.Doubtful(spec), doubtful))
	set(v1.ConditionDeprecatedFields, v1.ReasonDeprecated, fieldnotes.Deprecated(spec))
}
