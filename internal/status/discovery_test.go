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

// A node whose discovery labels are away says so and since when. It stays usable where it is.
func TestNodesWithoutDiscoveryLabels(t *testing.T) {
	const (
		since   = "1970-01-12T13:40:00Z"
		missing = "nvidia.com/gpu-operator.discovery-missing-since"
		lost    = "nvidia.com/gpu-operator.discovery-lost-since"
		kept    = "nothing is removed"
	)
	without := func(b *bed, prefix string) {
		node := b.snapshot.Nodes[0].Object
		node.Annotations = map[string]string{missing: since}
		for key := range node.Labels {
			if strings.HasPrefix(key, "feature.node.kubernetes.io/"+prefix) {
				delete(node.Labels, key)
			}
		}
		b.relabel(0, "nvidia.com/gpu.present", "true")
	}
	tests := map[string]struct {
		spec            v1.ClusterPolicySpec
		change          func(*bed)
		ready           bool
		stage           v1.Stage
		operand         string
		reason, message string
		verdict         string
	}{
		"all, and the GPUs can be used": {
			change: func(b *bed) { without(b, "") }, ready: true, stage: v1.StageValidated,
			reason: "DiscoveryLabelsMissing", message: "no discovery labels since " + since + "; " + kept, verdict: "True Reconciled",
		},
		"the GPU, and the kubelet has some": {
			change: func(b *bed) { without(b, "pci") }, ready: true, stage: v1.StageValidated,
			reason: "DiscoveryLabelsMissing", message: "no GPU in its discovery labels since " + since + "; " + kept, verdict: "True Reconciled",
		},
		"the operating system": {
			change: func(b *bed) { without(b, "system-os") }, ready: true, stage: v1.StageValidated,
			reason: "DiscoveryLabelsMissing", message: "no operating system in its discovery labels since " + since + "; " + kept, verdict: "True Reconciled",
		},
		"the GPU, and there is none to allocate": {
			spec: v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: 3 * time.Minute}}},
			change: func(b *bed) {
				without(b, "pci")
				b.snapshot.Nodes[0].Object.Annotations[lost] = "1970-01-12T13:41:00Z"
				b.snapshot.Nodes[0].Object.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
			},
			stage: v1.StageDiscovered, reason: "DiscoveryLabelsMissing",
			message: "no GPU in its discovery labels since " + since + "; operand removal at 1970-01-12T13:44:00Z if no pod uses GPUs; devic",
			verdict: "False OperandNotReady",
		},
		"one that a selector asks for": {
			spec: v1.ClusterPolicySpec{GFD: &v1.GFDSpec{PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"feature.node.kubernetes.io/tier": "gpu"}}}},
			change: func(b *bed) {
				b.snapshot.Nodes[0].Object.Annotations = map[string]string{missing: since}
				b.relabel(0, "nvidia.com/gpu.deploy.gpu-feature-discovery", "true")
			},
			ready: true, stage: v1.StageValidated, reason: "DiscoveryLabelsMissing", verdict: "True Reconciled",
			message: "no feature.node.kubernetes.io/tier for gpu-feature-discovery since " + since + "; operand removal at 1970-01-12T1",
		},
		"an operand is on its way": {
			change: func(b *bed) { without(b, ""); b.start(0, "container-toolkit") },
			stage:  v1.StageDiscovered, reason: "DiscoveryLabelsMissing",
			message: "no discovery labels since " + since + "; " + kept + "; container-toolkit: container main is not r",
			verdict: "False OperandNotReady",
		},
		"an operand has failed, which is told first": {
			change: func(b *bed) { without(b, ""); b.fail(0, "driver", "boom") },
			stage:  v1.StageDriver, operand: "driver", reason: "CrashLoopBackOff",
			message: "container main: CrashLoopBackOff, exit code 1 (no discovery labels since " + since + "; " + kept + ")", verdict: "False OperandFailed",
		},
		"the driver is outdated, too": {
			change: func(b *bed) {
				without(b, "")
				b.pod(0, "driver").Annotations[templateDigest] = "before"
			},
			ready: true, stage: v1.StageValidated, operand: "driver", reason: "DiscoveryLabelsMissing",
			message: "driver is outdated: kubectl -n gpu-operator delete pod driver-node-00000; no discovery labels since 1970-01-12T13:40:00Z; not",
			verdict: "False UpgradePending",
		},
		"nobody has noted it yet": {
			change: func(b *bed) { without(b, ""); delete(b.snapshot.Nodes[0].Object.Annotations, missing) },
			ready:  true, stage: v1.StageValidated, verdict: "True Reconciled",
		},
		"a note that is no time": {
			change: func(b *bed) { without(b, ""); b.snapshot.Nodes[0].Object.Annotations[missing] = "soon" },
			ready:  true, stage: v1.StageValidated, verdict: "True Reconciled",
		},
		"they are back, and the note is not gone yet": {
			change: func(b *bed) { b.snapshot.Nodes[0].Object.Annotations = map[string]string{missing: since} },
			ready:  true, stage: v1.StageValidated, verdict: "True Reconciled",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBed(t, 2)
			b.spec = test.spec
			test.change(b)
			status := b.status()
			entry := status.Nodes[0]
			g.Expect(entry.Name).To(Equal("node-00000"), "it comes before what has nothing to tell")
			g.Expect(entry.Ready).To(Equal(test.ready))
			g.Expect(entry.Stage).To(Equal(test.stage))
			g.Expect(entry.Operand).To(Equal(test.operand))
			g.Expect(entry.Reason).To(Equal(test.reason))
			if test.message == "" {
				g.Expect(entry.Message).To(BeEmpty())
			}
			g.Expect(entry.Message).To(HavePrefix(test.message))
			g.Expect(conditions(status)["Ready"]).To(Equal(test.verdict))
			condition := b.pass().Fleet.Nodes[0].Latest.Condition("node-00000")
			g.Expect(condition.Status).To(BeEquivalentTo(map[bool]string{true: "True", false: "False"}[test.ready]))
			if test.reason != "" {
				g.Expect(condition.Reason).To(Equal(test.reason))
			}
		})
	}
}
