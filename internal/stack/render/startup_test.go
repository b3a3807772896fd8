package render_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// All pods of the stack tolerate the startup taints, and running drivers do not become outdated by that.
func TestStartupTaintsAreTolerated(t *testing.T) {
	startup := &v1.NodeStartupSpec{Taints: []v1.StartupTaint{
		{Key: "example.com/starting", Value: "now", Effect: "NoExecute"}, {Key: "nvidia.com/gpu", Effect: "NoSchedule"},
	}}
	starting := corev1.Toleration{Key: "example.com/starting", Operator: "Exists", Effect: "NoExecute"}
	gpu := corev1.Toleration{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"}
	own := corev1.Toleration{Key: "team", Operator: "Exists"}
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		name string
		want []corev1.Toleration
	}{
		"in addition to the default": {name: "driver", want: []corev1.Toleration{gpu, starting}},
		"in addition to those of the spec": {
			name: "device-plugin",
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{Tolerations: []corev1.Toleration{own}}},
			want: []corev1.Toleration{own, starting, gpu},
		},
		"in addition to those of the operand": {
			name: "operator-validator",
			spec: v1.ClusterPolicySpec{
				Validator: &v1.ValidatorSpec{PlacementSpec: v1.PlacementSpec{Tolerations: []corev1.Toleration{own}}},
			},
			want: []corev1.Toleration{own, starting, gpu},
		},
		"discovery tolerates all already": {name: "node-discovery", want: []corev1.Toleration{{Operator: "Exists"}}},
		"discovery with other tolerations": {
			name: "node-discovery",
			spec: v1.ClusterPolicySpec{
				NodeDiscovery: &v1.NodeDiscoverySpec{PlacementSpec: v1.PlacementSpec{Tolerations: []corev1.Toleration{own}}},
			},
			want: []corev1.Toleration{own, starting, gpu},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := situation{spec: test.spec}.daemonSet(t, operand.Name(test.name))
			test.spec.NodeStartup = startup
			after := situation{spec: test.spec}.daemonSet(t, operand.Name(test.name))
			g.Expect(after.Spec.Template.Spec.Tolerations).To(Equal(test.want))
			g.Expect(after.Annotations[digestKey]).To(Equal(before.Annotations[digestKey]))
		})
	}
}

// All pods of the stack tolerate the taint of a node with an unhealthy GPU where the spec may set it. Otherwise their
// templates are those without actions, so that a release that knows them replaces no pod.
func TestTheTaintOfUnhealthyNodesIsTolerated(t *testing.T) {
	unhealthy := corev1.Toleration{Key: "nvidia.com/gpu-operator.unhealthy", Operator: "Exists", Effect: "NoSchedule"}
	for action, tolerated := range map[v1.HealthAction]bool{
		v1.HealthActionTaint: true, v1.HealthActionCordon: false, v1.HealthActionNone: false,
	} {
		for _, name := range []operand.Name{"driver", "container-toolkit", "device-plugin", "health-agent"} {
			g := NewWithT(t)
			spec := v1.ClusterPolicySpec{Health: &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}}}
			before := situation{spec: spec}.daemonSet(t, name)
			spec.Health.Actions = &v1.HealthActionsSpec{Hardware: action}
			after := situation{spec: spec}.daemonSet(t, name)
			g.Expect(after.Annotations[digestKey]).To(Equal(before.Annotations[digestKey]))
			if tolerated {
				g.Expect(after.Spec.Template.Spec.Tolerations).To(ContainElement(unhealthy), "%s", name)
			} else {
				g.Expect(after.Spec.Template.Spec).To(Equal(before.Spec.Template.Spec), "%s", name)
			}
		}
	}
}
