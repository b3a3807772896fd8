package conditions

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// A condition that is set names its cause; one without a cause is removed, or is False.
func TestConditionsNameTheirCause(t *testing.T) {
	vulnerable, _ := safeversion.Check(safeversion.Toolkit, "v1.17.0")
	outdated := func(inSpec bool, nodes ...string) func(*v1.ClusterPolicyStatus) {
		return func(status *v1.ClusterPolicyStatus) {
			SetOutdatedComponents(status, []OutdatedVersion{{Outdated: vulnerable, InSpec: inSpec, Nodes: nodes}})
		}
	}
	admission := func(exists bool) func(*v1.ClusterPolicyStatus) {
		return func(status *v1.ClusterPolicyStatus) {
			in := operand.Input{Contents: map[operand.Reference]operand.Content{}}
			if exists {
				in.Contents[operand.AdmissionPolicies] = operand.Content{}
			}
			SetAdmissionPolicyMissing(status, in)
		}
	}
	fields := func(spec v1.ClusterPolicySpec, ignored, doubtful []string) func(*v1.ClusterPolicyStatus) {
		return func(status *v1.ClusterPolicyStatus) { SetFieldNotes(status, spec, ignored, doubtful) }
	}
	deprecated := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{DefaultRuntime: "docker"}}
	for name, test := range map[string]struct {
		set                           func(*v1.ClusterPolicyStatus)
		kind, status, reason, message string
	}{
		"safe":        {set: func(s *v1.ClusterPolicyStatus) { SetOutdatedComponents(s, nil) }, kind: "OutdatedComponent"},
		"in the spec": {outdated(true), "OutdatedComponent", "True", "OutdatedComponent", "v1.17.0 (in the spec) is "},
		"on a node": {
			outdated(true, "a"), "OutdatedComponent", "True", "OutdatedComponent", "v1.17.0 (in the spec, on a) is ",
		},
		"on nodes": {
			outdated(false, "a", "b", "c"), "OutdatedComponent", "True", "OutdatedComponent", "(on 3 nodes: a, b, c) is ",
		},
		"on many nodes": {
			outdated(false, "a", "b", "c", "d"), "OutdatedComponent", "True", "OutdatedComponent",
			"(on 4 nodes: a, b, c and 1 more) is ",
		},
		"admission": {set: admission(true), kind: "AdmissionPolicyMissing"},
		"no admission": {
			admission(false), "AdmissionPolicyMissing", "True", "AdmissionPolicyMissing", "run kubectl apply -f https://",
		},
		"fields":       {fields(v1.ClusterPolicySpec{}, nil, nil), "UnsupportedFields", "False", "None", ""},
		"plain fields": {fields(v1.ClusterPolicySpec{}, nil, nil), "DeprecatedFields", "False", "None", ""},
		"deprecated": {
			fields(deprecated, nil, nil), "DeprecatedFields", "True", "Deprecated", "spec.operator.defaultRuntime",
		},
		"ignored": {
			fields(v1.ClusterPolicySpec{}, []string{"a"}, []string{"b"}), "UnsupportedFields", "True", "NotSupportedYet", "a; b",
		},
		"doubtful": {
			fields(v1.ClusterPolicySpec{}, nil, []string{"b"}), "UnsupportedFields", "True", "DoubtfulFields", "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status := v1.ClusterPolicyStatus{ObservedGeneration: 3, Conditions: []metav1.Condition{{
				Type: test.kind, Status: metav1.ConditionTrue, Reason: "Before",
			}}}
			test.set(&status)
			match := And(HaveField("Type", test.kind), HaveField("Status", metav1.ConditionStatus(test.status)),
				HaveField("Reason", test.reason), HaveField("Message", ContainSubstring(test.message)),
				HaveField("ObservedGeneration", int64(3)))
			if test.status == "" {
				g.Expect(status.Conditions).NotTo(ContainElement(HaveField("Type", test.kind)))
			} else {
				g.Expect(status.Conditions).To(ContainElement(match))
			}
		})
	}
}

func TestChartNotes(t *testing.T) {
	g, policy := NewWithT(t), &v1.ClusterPolicy{}
	g.Expect(ChartNotes(policy)).To(BeEmpty())
	policy.Annotations = map[string]string{"nvidia.com/gpu-operator.chart-notes": "a is ignored.\n\n  b is, too\n"}
	g.Expect(ChartNotes(policy)).To(Equal([]string{"values of the chart: a is ignored", "values of the chart: b is, too"}))
	policy.Annotations["nvidia.com/gpu-operator.chart-notes"] = strings.Repeat("a\n", 20)
	g.Expect(ChartNotes(policy)).To(HaveLen(16))
}
