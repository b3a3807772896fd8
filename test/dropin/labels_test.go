package dropin

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// labelRow has the labels, or annotations, that have the same outcome.
type labelRow struct {
	Outcome string `json:"outcome"`
	Beside  string `json:"beside"`
	// With are other labels of the node, and Without those that it lacks.
	With        map[string]string `json:"with"`
	Without     []string          `json:"without"`
	Annotations bool              `json:"annotations"`
	Labels      map[string]string `json:"labels"`
}

// No label or annotation of a node that is a setting is without an effect and without a word.
func TestNoLabelIsSilent(t *testing.T) {
	rows := readRows[labelRow](t, "testdata/labels.yaml")
	count := 0
	for _, row := range rows {
		for _, key := range slices.Sorted(maps.Keys(row.Labels)) {
			count++
			t.Run(row.Outcome+" "+key+"="+row.Labels[key], func(t *testing.T) {
				if got, says := outcomeOfLabel(t, row, key, row.Labels[key]); got != row.Outcome {
					t.Errorf("it is %s, want %s; the condition: %s", got, row.Outcome, says)
				}
			})
		}
	}
	t.Logf("%d labels and annotations", count)
}

// outcomeOfLabel compares what the operator does with a node without and with the label, and returns the message of its
// condition.
func outcomeOfLabel(t *testing.T, row labelRow, key, value string) (outcome, says string) {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t}
	spec := v1.ClusterPolicySpec{}
	e.Expect(yaml.UnmarshalStrict([]byte(row.Beside), &spec)).To(Succeed())
	p := situation{
		spec: spec, nodes: []nodeinfo.Facts{gpuNode("ubuntu", "24.04")}, keys: map[string][]string{"configs": {"one", "two"}},
		configMaps: []*corev1.ConfigMap{{
			ObjectMeta: metav1.ObjectMeta{Name: "layouts"},
			Data: map[string]string{"config.yaml": "version: v1\nmig-configs:\n  all-disabled:\n  " +
				"- {devices: all, mig-enabled: false}\n"},
		}},
	}.plan(e)
	without := labelledNode(row)
	with := without.DeepCopy()
	if row.Annotations {
		with.Annotations = map[string]string{key: value}
	} else {
		with.Labels[key] = value
	}
	before, after := p.ForNode(observe.Facts(without)), p.ForNode(observe.Facts(with))
	written := p.NodeLabels(after.Facts, with.Labels, plan.ReadyPods{Injector: true})
	says = shownMessage(after, with)
	switch change, there := written[key]; {
	case strings.Contains(says, key) || after.MIGLayout != "" && strings.Contains(after.MIGLayout, value):
		return "noted", says
	case there && change != nil:
		return "written", says
	case changesTheNode(p, before, after, without, with):
		return "honoured", says
	case after.Partitioner != "" && key == "nvidia.com/mig.config":
		return "passed", says
	case there:
		return "removed", says
	}
	return "kept", says
}

// labelledNode is a node with a GPU that supports MIG.
func labelledNode(row labelRow) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{
			"feature.node.kubernetes.io/pci-10de.present":             "true",
			"feature.node.kubernetes.io/kernel-version.full":          "6.8.0-60-generic",
			"feature.node.kubernetes.io/system-os_release.ID":         "ubuntu",
			"feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
			"nvidia.com/mig.capable":                                  "true",
			"nvidia.com/gpu.product":                                  "NVIDIA-H100-80GB-HBM3",
		}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: "v1.36.0",
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	maps.Copy(node.Labels, row.With)
	for _, key := range row.Without {
		delete(node.Labels, key)
	}
	return node
}

// shownMessage is that of the condition of the node once all its operands are ready; empty if it is to have none.
func shownMessage(node plan.NodePlan, object *corev1.Node) string {
	node.Essential, node.Auxiliary, node.NeedsAllocatable, node.Partitioner = nil, nil, false, ""
	assessment := assess.Node(assess.Input{NodePlan: node, Node: object, Now: time.Unix(1, 0)})
	if !assessment.Ready() {
		return ""
	}
	return assessment.Condition(object.Name).Message
}

// changesTheNode reports whether the operator plans another thing for a node, gives it other labels than it has
// already, or upgrades its driver otherwise.
func changesTheNode(p plan.Plan, before, after plan.NodePlan, without, with *corev1.Node) bool {
	if before.Facts.Managed() != after.Facts.Managed() {
		return true
	}
	ready := plan.ReadyPods{Injector: true}
	labelsBefore := p.NodeLabels(before.Facts, without.Labels, ready)
	labelsAfter := p.NodeLabels(after.Facts, with.Labels, ready)
	for key := range with.Labels {
		if without.Labels[key] != with.Labels[key] {
			delete(labelsBefore, key)
			delete(labelsAfter, key)
		}
	}
	upgradeBefore, _ := observe.UpgradeNode(&observe.UpgradeFacts{Node: without})
	upgradeAfter, _ := observe.UpgradeNode(&observe.UpgradeFacts{Node: with})
	before.Facts, after.Facts = nodeinfo.Facts{}, nodeinfo.Facts{}
	return !reflect.DeepEqual(before, after) || !reflect.DeepEqual(labelsBefore, labelsAfter) ||
		!reflect.DeepEqual(upgradeBefore, upgradeAfter)
}
