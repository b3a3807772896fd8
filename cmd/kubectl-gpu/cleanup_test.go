package main

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// released is a node from which cleanup removes a pool label, a taint and the condition.
func released(t *testing.T, name string, cordoned bool) cleanup.Node {
	t.Helper()
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "one", Labels: map[string]string{
			"nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64", "nvidia.com/gpu.present": "true",
		}},
		Spec: corev1.NodeSpec{Unschedulable: cordoned, Taints: []corev1.Taint{{
			Key: "nvidia.com/gpu-operator.not-ready", Effect: corev1.TaintEffectNoSchedule,
		}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "nvidia.com/GPUReady"}}},
	}
	if cordoned {
		node.Annotations = map[string]string{
			"nvidia.com/gpu-operator.driver-upgrade": `{"uid":"one","round":1,"state":"drain-required","cordoned":true}`,
		}
	}
	return cleanup.Node{Name: name, Removal: nodemarks.Remove(catalogue, node)}
}

// Nodes from which the same is removed are on one line.
func TestCleanupText(t *testing.T) {
	object := func(kind, name string) cleanup.Object {
		return cleanup.Object{Kind: kind, Namespace: "gpu-operator", Name: name}
	}
	plan := &cleanup.Plan{
		Busy:     []cleanup.BusyNode{{Name: "gpu-2", Pods: []string{"team-a/shell", "team-a/train-0"}}},
		Policies: []cleanup.Policy{{Name: "cluster-policy", Terminating: true}, {Name: "other", Finalizers: []string{"a/b"}}},
		DaemonSets: [][]cleanup.Object{
			{object("DaemonSet", "nvidia-dcgm-exporter"), object("DaemonSet", "nvidia-operator-validator")},
			{object("DaemonSet", "nvidia-driver-daemonset")},
		},
		Others: []cleanup.Object{{Kind: "RuntimeClass", Name: "nvidia"}},
		Nodes:  []cleanup.Node{released(t, "gpu-1", false), released(t, "gpu-2", true), released(t, "gpu-3", false)},
		Namespaces: []cleanup.Namespace{{Name: "gpu-operator", Restored: map[string]string{
			"pod-security.kubernetes.io/enforce": "baseline",
		}}, {Name: "old"}},
	}
	NewWithT(t).Expect(cleanupText(plan)).To(Equal(`These pods may use GPUs:
  gpu-2: team-a/shell, team-a/train-0
Delete the ClusterPolicies:
  cluster-policy (terminating)
  other, which then waits for the finalizers of others: a/b
Delete the operands, each line once the pods of the one before are gone:
  DaemonSet gpu-operator/nvidia-dcgm-exporter, DaemonSet gpu-operator/nvidia-operator-validator
  DaemonSet gpu-operator/nvidia-driver-daemonset
Delete the other objects:
  RuntimeClass nvidia
Remove from nodes:
  gpu-1, gpu-3
    labels nvidia.com/gpu-operator.pool, nvidia.com/gpu.present
    taints nvidia.com/gpu-operator.not-ready:NoSchedule
    condition nvidia.com/GPUReady
  gpu-2
    labels nvidia.com/gpu-operator.pool, nvidia.com/gpu.present
    annotations nvidia.com/gpu-operator.driver-upgrade
    taints nvidia.com/gpu-operator.not-ready:NoSchedule
    condition nvidia.com/GPUReady
    cordon of the driver upgrade
Reset the Pod Security labels of the namespaces:
  gpu-operator: back to pod-security.kubernetes.io/enforce=baseline
  old
`))
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]string{
		"y\n": "", "Yes\n": "", "y": "", "\n": "not confirmed", "no\n": "not confirmed", "": "add --yes",
	} {
		g, out := NewWithT(t), &bytes.Buffer{}
		err := confirm(strings.NewReader(answer), out, "Remove all of this?")
		g.Expect(out.String()).To(HavePrefix("Remove all of this? [y/N]: "))
		if want == "" {
			g.Expect(err).NotTo(HaveOccurred(), "%q", answer)
			continue
		}
		g.Expect(err).To(MatchError(ContainSubstring(want)), "%q", answer)
	}
}
