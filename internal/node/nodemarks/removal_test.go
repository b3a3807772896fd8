package nodemarks_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// upgraded is a node in the middle of a driver upgrade, with marks of all kinds, and values of other writers beside
// each of them.
const upgraded = `
metadata:
  name: gpu-1
  uid: one
  resourceVersion: "7"
  labels:
    kubernetes.io/hostname: gpu-1
    feature.node.kubernetes.io/pci-10de.present: "true"
    feature.node.kubernetes.io/kernel-version.full: 6.8.0
    nvidia.com/gpu.product: H100
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.deploy.driver: paused-by-hand
    nvidia.com/gpu.deploy.device-plugin: "true"
    nvidia.com/gpu.deploy.health-agent: "true"
    nvidia.com/gpu.deploy.other: "true"
    nvidia.com/gpu-operator.pool: ubuntu24.04-amd64
    nvidia.com/gpu-operator.runtime: containerd
    clusterpolicy.github.io/driver: ubuntu24.04-amd64
    nvidia.com/gpu-driver-upgrade-state: drain-required
    nvidia.com/gpu-driver-upgrade.skip: "true"
    nvidia.com/mig.config: all-disabled
    nvidia.com/mig.config.state: success
  annotations:
    example.com/owner: team-a
    nvidia.com/gpu-operator.mig-config: all-disabled
    nvidia.com/gpu-operator.gpus-on-bus: "8"
    nvidia.com/gpu-operator.gpu-health: '{"boot":"b","faults":[]}'
    nvidia.com/gpu-operator.health-record: '{"uid":"one","state":"done","action":"taint","fault":"reset-1"}'
    nvidia.com/gpu-operator.discovered-labels: feature.node.kubernetes.io/kernel-version.full,kubernetes.io/hostname
    nvidia.com/gpu-operator.startup-taints: example.com/starting:NoSchedule
    nvidia.com/gpu-operator.driver-upgrade: '{"uid":"one","round":1,"state":"drain-required","cordoned":true}'
    nvidia.com/gpu-driver-upgrade-enabled: "true"
spec:
  unschedulable: true
  taints:
  - {key: example.com/starting, effect: NoSchedule}
  - {key: example.com/starting, effect: NoExecute}
  - {key: nvidia.com/gpu-operator.not-ready, effect: NoExecute}
  - {key: nvidia.com/gpu-operator.unhealthy, effect: NoSchedule}
  - {key: nvidia.com/gpu, effect: NoSchedule}
status:
  conditions:
  - {type: Ready, status: "True"}
  - {type: nvidia.com/GPUReady, status: "False"}
  - {type: nvidia.com/GPUHealthy, status: "True"}
`

// restored is what is left of it.
const restored = `
metadata:
  name: gpu-1
  uid: one
  resourceVersion: "7"
  labels:
    kubernetes.io/hostname: gpu-1
    feature.node.kubernetes.io/pci-10de.present: "true"
    nvidia.com/gpu.product: H100
    nvidia.com/gpu.deploy.driver: paused-by-hand
    nvidia.com/gpu.deploy.other: "true"
    nvidia.com/gpu-driver-upgrade.skip: "true"
  annotations:
    example.com/owner: team-a
spec:
  taints:
  - {key: example.com/starting, effect: NoExecute}
  - {key: nvidia.com/gpu, effect: NoSchedule}
status:
  conditions:
  - {type: Ready, status: "True"}
  - {type: nvidia.com/GPUReady, status: "False"}
  - {type: nvidia.com/GPUHealthy, status: "True"}
`

func decoded(t *testing.T, text string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(text), node)).To(Succeed())
	return node
}

func remove(t *testing.T, node *corev1.Node) *nodemarks.Removal {
	t.Helper()
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return nodemarks.Remove(catalogue, node)
}

// merge applies a merge patch as RFC 7396 defines it.
func merge(into, patch map[string]any) map[string]any {
	for key, change := range patch {
		changed, isMap := change.(map[string]any)
		inner, _ := into[key].(map[string]any)
		switch {
		case change == nil:
			delete(into, key)
		case isMap && inner != nil:
			into[key] = merge(inner, changed)
		default:
			into[key] = change
		}
	}
	return into
}

func TestRemoveLeavesWhatOthersWrote(t *testing.T) {
	g := NewWithT(t)
	node := decoded(t, upgraded)
	removal := remove(t, node)
	g.Expect(node).To(Equal(decoded(t, upgraded)), "the node may be that of a cache")
	g.Expect(removal.IsEmpty()).To(BeFalse())
	g.Expect(removal.Conditions).To(Equal([]string{"nvidia.com/GPUReady", "nvidia.com/GPUHealthy"}))
	status, err := json.Marshal(removal.StatusPatch())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status).To(MatchJSON(`{"status":{"conditions":[
		{"type":"nvidia.com/GPUReady","$patch":"delete"},{"type":"nvidia.com/GPUHealthy","$patch":"delete"}]}}`))

	patch, err := json.Marshal(removal.NodePatch())
	g.Expect(err).NotTo(HaveOccurred())
	before, changes := map[string]any{}, map[string]any{}
	g.Expect(yaml.Unmarshal([]byte(upgraded), &before)).To(Succeed())
	g.Expect(json.Unmarshal(patch, &changes)).To(Succeed())
	after, err := json.Marshal(merge(before, changes))
	g.Expect(err).NotTo(HaveOccurred())
	got := decoded(t, string(after))
	g.Expect(got).To(Equal(decoded(t, restored)))

	got.Status.Conditions = got.Status.Conditions[:1]
	again := remove(t, got)
	g.Expect(again.IsEmpty()).To(BeTrue(), "%v", again)
	g.Expect(again.NodePatch()).To(BeNil())
	g.Expect(again.StatusPatch()).To(BeNil())
}

// Only the operator's own cordon is lifted: by a readable record of this very Node.
func TestACordonOfOthersStays(t *testing.T) {
	for name, record := range map[string]string{
		"cordoned before the upgrade": `{"uid":"one","round":1,"state":"drain-required"}`,
		"copied from another Node":    `{"uid":"two","round":1,"state":"drain-required","cordoned":true}`,
		"of a later release":          `{"uid":"one","round":1,"state":"resting","cordoned":true}`,
		"not a record":                `cordoned`,
		"none":                        "",
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), decoded(t, upgraded)
			const key = "nvidia.com/gpu-operator.driver-upgrade"
			node.Annotations[key] = record
			if record == "" {
				delete(node.Annotations, key)
			}
			removal := remove(t, node)
			g.Expect(removal.Uncordon).To(BeFalse())
			g.Expect(removal.NodePatch()["spec"]).NotTo(HaveKey("unschedulable"))
			if record != "" {
				g.Expect(removal.Annotations).To(HaveKeyWithValue(key, BeNil()))
			}
		})
	}
}

// So is a cordon because of an unhealthy GPU, also when the node is handed to NVIDIA's operator.
func TestTheCordonOfAnUnhealthyNodeIsLifted(t *testing.T) {
	for name, test := range map[string]struct {
		record string
		lifted bool
	}{
		"cordoned":                  {`{"uid":"one","state":"done","action":"cordon","fault":"reset-1"}`, true},
		"tainted":                   {`{"uid":"one","state":"done","action":"taint","fault":"reset-1"}`, false},
		"not cordoned yet":          {`{"uid":"one","state":"claimed","action":"cordon","fault":"reset-1"}`, false},
		"uncordoned by a person":    {`{"uid":"one","state":"undone","action":"cordon","fault":"reset-1"}`, false},
		"copied from a former Node": {`{"uid":"two","state":"done","action":"cordon","fault":"reset-1"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), decoded(t, upgraded)
			delete(node.Annotations, "nvidia.com/gpu-operator.driver-upgrade")
			node.Annotations["nvidia.com/gpu-operator.health-record"] = test.record
			for _, removal := range []*nodemarks.Removal{remove(t, node), nodemarks.HandBack(node)} {
				g.Expect(removal.Uncordon).To(Equal(test.lifted))
				g.Expect(removal.Annotations).To(HaveKeyWithValue("nvidia.com/gpu-operator.health-record", BeNil()))
				g.Expect(removal.Taints).To(ContainElement(HaveField("Key", "nvidia.com/gpu-operator.unhealthy")))
			}
		})
	}
}

// A MIG layout that differs from the one that the operator has written is a user's.
func TestAMIGLayoutOfAUserStays(t *testing.T) {
	for name, written := range map[string]string{"never written": "", "changed since": "all-1g.5gb"} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), decoded(t, upgraded)
			const key = "nvidia.com/gpu-operator.mig-config"
			node.Annotations[key] = written
			if written == "" {
				delete(node.Annotations, key)
			}
			removal := remove(t, node)
			g.Expect(removal.Labels).NotTo(HaveKey("nvidia.com/mig.config"))
			g.Expect(removal.Labels).To(HaveKeyWithValue("nvidia.com/mig.config.state", BeNil()))
		})
	}
}

// Values that an administrator or NVIDIA's operator has set on a node that this operator never managed are not its.
func TestANodeOfOthersIsNotTouched(t *testing.T) {
	removal := remove(t, decoded(t, `
metadata:
  labels:
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.deploy.device-plugin: "true"
    nvidia.com/gpu-driver-upgrade-state: upgrade-failed
  annotations: {nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable: "true"}
spec:
  unschedulable: true
  taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
`))
	NewWithT(t).Expect(removal.IsEmpty()).To(BeTrue(), "%v", removal)
}

// handedBack is what is left of upgraded for NVIDIA's operator: all that it or the programs of its operands read.
const handedBack = `
metadata:
  name: gpu-1
  uid: one
  resourceVersion: "7"
  labels:
    kubernetes.io/hostname: gpu-1
    feature.node.kubernetes.io/pci-10de.present: "true"
    feature.node.kubernetes.io/kernel-version.full: 6.8.0
    nvidia.com/gpu.product: H100
    nvidia.com/gpu.present: "true"
    nvidia.com/gpu.deploy.driver: paused-by-hand
    nvidia.com/gpu.deploy.device-plugin: "true"
    nvidia.com/gpu.deploy.other: "true"
    nvidia.com/gpu-driver-upgrade-state: drain-required
    nvidia.com/gpu-driver-upgrade.skip: "true"
    nvidia.com/mig.config: all-disabled
    nvidia.com/mig.config.state: success
  annotations:
    example.com/owner: team-a
    nvidia.com/gpu-driver-upgrade-enabled: "true"
spec:
  unschedulable: true
  taints:
  - {key: example.com/starting, effect: NoExecute}
  - {key: nvidia.com/gpu, effect: NoSchedule}
status:
  conditions:
  - {type: Ready, status: "True"}
  - {type: nvidia.com/GPUReady, status: "False"}
  - {type: nvidia.com/GPUHealthy, status: "True"}
`

func TestHandBackLeavesWhatNVIDIAsOperatorReads(t *testing.T) {
	g := NewWithT(t)
	removal := nodemarks.HandBack(decoded(t, upgraded))
	g.Expect(removal.StatusPatch()).To(HaveKey("status"))
	patch, err := json.Marshal(removal.NodePatch())
	g.Expect(err).NotTo(HaveOccurred())
	before, changes := map[string]any{}, map[string]any{}
	g.Expect(yaml.Unmarshal([]byte(upgraded), &before)).To(Succeed())
	g.Expect(json.Unmarshal(patch, &changes)).To(Succeed())
	after, err := json.Marshal(merge(before, changes))
	g.Expect(err).NotTo(HaveOccurred())
	got := decoded(t, string(after))
	g.Expect(got).To(Equal(decoded(t, handedBack)))
	got.Status.Conditions = got.Status.Conditions[:1]
	g.Expect(nodemarks.HandBack(got).IsEmpty()).To(BeTrue())
}

// A cordon for a MIG layout is undone if it is this operator's, by the record of this Node.
func TestRemoveDrain(t *testing.T) {
	for name, test := range map[string]struct {
		record   string
		uncordon bool
	}{
		"this operator's cordon":  {`{"uid":"one","state":"evicts-users","layout":"a","cordoned":true}`, true},
		"another client's cordon": {`{"uid":"one","state":"changing","layout":"a"}`, false},
		"a failed drain":          {`{"uid":"one","state":"failed","layout":"a"}`, false},
		"another node's record":   {`{"uid":"two","state":"changing","layout":"a","cordoned":true}`, false},
		"a state of another one":  {`{"uid":"one","state":"later","layout":"a","cordoned":true}`, true},
		"no record":               {`cordoned`, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), &corev1.Node{}
			node.Name, node.UID, node.Spec.Unschedulable = "gpu-1", "one", true
			node.Annotations = map[string]string{"nvidia.com/gpu-operator.mig-drain": test.record}
			for _, removal := range []*nodemarks.Removal{remove(t, node), nodemarks.HandBack(node)} {
				g.Expect(removal.IsEmpty()).To(BeFalse())
				g.Expect(removal.Uncordon).To(Equal(test.uncordon))
				g.Expect(removal.Annotations).To(HaveKeyWithValue("nvidia.com/gpu-operator.mig-drain", BeNil()))
			}
		})
	}
}

// A patch has only what is removed: a taint of others that a patch lists would come back after its removal.
func TestNodePatch(t *testing.T) {
	const own, head = "nvidia.com/gpu-operator.", `{"metadata":{"uid":"one","resourceVersion":"7"`
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"a label": {
			func(n *corev1.Node) { n.Labels = map[string]string{own + "cleanup": "a"} },
			head + `,"labels":{"` + own + `cleanup":null}}}`,
		},
		"an annotation": {
			func(n *corev1.Node) { n.Annotations = map[string]string{own + "ready-boot": "a"} },
			head + `,"annotations":{"` + own + `ready-boot":null}}}`,
		},
		"a taint": {
			func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: own + "not-ready", Effect: "NoExecute"})
			},
			head + `},"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), &corev1.Node{}
			node.UID, node.ResourceVersion = "one", "7"
			node.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: "NoSchedule"}}
			test.change(node)
			removal := remove(t, node)
			g.Expect(removal.IsEmpty()).To(BeFalse())
			patch, err := json.Marshal(removal.NodePatch())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(patch).To(MatchJSON(test.want))
		})
	}
}

func TestAnEmptyMIGLayoutOfAUserStays(t *testing.T) {
	node := &corev1.Node{}
	node.Labels = map[string]string{"nvidia.com/mig.config": ""}
	NewWithT(t).Expect(remove(t, node).IsEmpty()).To(BeTrue())
}
