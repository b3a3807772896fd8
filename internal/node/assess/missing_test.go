package assess_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// An operand without a pod waits for its predecessor while the node has no label for it and the predecessor is not
// ready. Otherwise the missing pod itself is reported.
func TestMissingPodOfAnOperandThatFollowsAnother(t *testing.T) {
	const waiting, missing = "waiting for container-toolkit", "dcgm-exporter has no pod on the node yet"
	pod := func(ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready},
		}}}
	}
	labelled := map[string]string{"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
	tests := map[string]struct {
		labels map[string]string
		pods   assess.Pods
		want   string
	}{
		"the predecessor has no pod": {want: waiting},
		"the predecessor is not ready": {
			pods: assess.Pods{"container-toolkit": pod(corev1.ConditionFalse)},
			want: waiting,
		},
		"the predecessor is ready": {
			pods: assess.Pods{"container-toolkit": pod(corev1.ConditionTrue)},
			want: missing,
		},
		"the node has the label": {labels: labelled, want: missing},
		"the node has the label, the predecessor is ready": {
			labels: labelled,
			pods:   assess.Pods{"container-toolkit": pod(corev1.ConditionTrue)},
			want:   missing,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec:      effective.Of(v1.ClusterPolicySpec{}),
					Auxiliary: []plan.OperandOnNode{{Operand: "dcgm-exporter", Injector: "container-toolkit"}},
				},
				Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: test.labels}},
				Pods: test.pods, Now: begin,
			}).Operands["dcgm-exporter"]
			NewWithT(t).Expect(got).To(And(HaveField("State", readiness.Progressing),
				HaveField("Reason", v1.ReasonPodMissing), HaveField("Message", test.want)))
		})
	}
}
