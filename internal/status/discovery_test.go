package status

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// A node without discovery labels reports since when. It stays ready if its GPUs can be used.
func TestNodesWithoutDiscoveryLabels(t *testing.T) {
	const (
		since   = "1970-01-12T13:40:00Z"
		missing = "nvidia.com/gpu-operator.discovery-missing-since"
		lost    = "nvidia.com/gpu-operator.discovery-lost-since"
		kept    = "its operands are kept"
	)
	without := func(e *env, prefix string) {
		node := e.snapshot.Nodes[0].Object
		node.Annotations = map[string]string{missing: since}
		for key := range node.Labels {
			if strings.HasPrefix(key, "feature.node.kubernetes.io/"+prefix) {
				delete(node.Labels, key)
			}
		}
		e.setLabel(0, "nvidia.com/gpu.present", "true")
	}
	tests := map[string]struct {
		spec            v1.ClusterPolicySpec
		change          func(*env)
		ready           bool
		stage           v1.Stage
		operand         string
		reason, message string
		// full is a part of the message of the node's condition, which is not truncated.
		full           string
		readyCondition string
	}{
		"all, and the GPUs can be used": {
			change: func(e *env) { without(e, "") }, ready: true, stage: v1.StageValidated,
			reason:         "DiscoveryLabelsMissing",
			message:        "no discovery labels since " + since + "; " + kept,
			readyCondition: "True Reconciled",
		},
		"the GPU, and the kubelet has some": {
			change: func(e *env) { without(e, "pci") }, ready: true, stage: v1.StageValidated,
			reason:         "DiscoveryLabelsMissing",
			message:        "discovery labels show no GPU since " + since + "; " + kept,
			readyCondition: "True Reconciled",
		},
		"the operating system": {
			change: func(e *env) { without(e, "system-os") }, ready: true, stage: v1.StageValidated,
			reason:         "DiscoveryLabelsMissing",
			message:        "discovery labels show no operating system since " + since + "; " + kept,
			readyCondition: "True Reconciled",
		},
		"the GPU, and there is none to allocate": {
			spec: v1.ClusterPolicySpec{
				NodeDiscovery: &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: 3 * time.Minute}},
			},
			change: func(e *env) {
				without(e, "pci")
				e.snapshot.Nodes[0].Object.Annotations[lost] = "1970-01-12T13:41:00Z"
				e.snapshot.Nodes[0].Object.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
			},
			stage: v1.StageDiscovered, reason: "DiscoveryLabelsMissing",
			message: "discovery labels show no GPU since " + since +
				"; its operands are removed at 1970-01-12T13:44:00Z if no pod uses GPUs",
			full:           "if no pod uses GPUs; device-plugin: the node has no allocatable GPU",
			readyCondition: "False OperandNotReady",
		},
		"one that a selector requires": {
			spec: v1.ClusterPolicySpec{
				GFD: &v1.GFDSpec{
					PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"feature.node.kubernetes.io/tier": "gpu"}},
				},
			},
			change: func(e *env) {
				e.snapshot.Nodes[0].Object.Annotations = map[string]string{missing: since}
				e.setLabel(0, "nvidia.com/gpu.deploy.gpu-feature-discovery", "true")
			},
			ready: true, stage: v1.StageValidated, reason: "DiscoveryLabelsMissing", readyCondition: "True Reconciled",
			message: "no label feature.node.kubernetes.io/tier, which gpu-feature-discovery requires, since " + since +
				"; the operand is re",
			full: since + "; the operand is removed at 1970-01-12T13:50:00Z",
		},
		"an operand starts": {
			change: func(e *env) { without(e, ""); e.startPod(0, "container-toolkit") },
			stage:  v1.StageDiscovered, reason: "DiscoveryLabelsMissing",
			message: "no discovery labels since " + since + "; " + kept +
				"; container-toolkit: container main is not ready",
			readyCondition: "False OperandNotReady",
		},
		"an operand has failed, which is reported first": {
			change: func(e *env) { without(e, ""); e.failPod(0, "driver", "boom") },
			stage:  v1.StageDriver, operand: "driver", reason: "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 1 (no discovery labels " +
				"since " + since + "; " + kept + ")",
			readyCondition: "False OperandFailed",
		},
		"the driver is outdated, too": {
			change: func(e *env) {
				without(e, "")
				e.pod(0, "driver").Annotations[templateDigest] = "before"
			},
			ready: true, stage: v1.StageValidated, operand: "driver", reason: "DiscoveryLabelsMissing",
			message: "driver is outdated: kubectl annotate node node-00000 nvidia.com/gpu-driver-upgrade-requested=true; " +
				"no discovery labels since",
			readyCondition: "False UpgradePending",
		},
		"the annotation is not written yet": {
			change: func(e *env) { without(e, ""); delete(e.snapshot.Nodes[0].Object.Annotations, missing) },
			ready:  true, stage: v1.StageValidated, readyCondition: "True Reconciled",
		},
		"an annotation that is not a time": {
			change: func(e *env) { without(e, ""); e.snapshot.Nodes[0].Object.Annotations[missing] = "soon" },
			ready:  true, stage: v1.StageValidated, readyCondition: "True Reconciled",
		},
		"the labels are back, and the annotation still exists": {
			change: func(e *env) { e.snapshot.Nodes[0].Object.Annotations = map[string]string{missing: since} },
			ready:  true, stage: v1.StageValidated, readyCondition: "True Reconciled",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, 2)
			e.spec = test.spec
			test.change(e)
			status := e.status()
			entry := status.Nodes[0]
			g.Expect(entry.Name).To(Equal("node-00000"), "it is listed before ready nodes")
			g.Expect(entry.Ready).To(Equal(test.ready))
			g.Expect(entry.Stage).To(Equal(test.stage))
			g.Expect(entry.Operand).To(Equal(test.operand))
			g.Expect(entry.Reason).To(Equal(test.reason))
			if test.message == "" {
				g.Expect(entry.Message).To(BeEmpty())
			}
			g.Expect(entry.Message).To(HavePrefix(test.message))
			g.Expect(conditionsOf(status)["Ready"]).To(Equal(test.readyCondition))
			condition := e.input().View.Nodes[0].Latest.Condition("node-00000")
			g.Expect(condition.Status).To(BeEquivalentTo(map[bool]string{true: "True", false: "False"}[test.ready]))
			g.Expect(condition.Message).To(ContainSubstring(test.full))
			if test.reason != "" {
				g.Expect(condition.Reason).To(Equal(test.reason))
			}
		})
	}
}
