package upgrades

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	skipLabel = "nvidia.com/gpu-driver-upgrade.skip"
	// discoveryPrefix is that of the labels by which node discovery shows PCI devices.
	discoveryPrefix = "feature.node.kubernetes.io/pci-"
	// gpusAnnotation is how many GPUs the simulator gives to a node.
	gpusAnnotation = "simulator.gpu-operator/gpus"
)

// intervention is what a user does to a node while its upgrade waits for a pod with a GPU.
type intervention struct {
	name string
	// first is done before the upgrade; then when the node waits.
	first, then func(e *env, node string)
	// keeps: the pod with a GPU stays protected.
	keeps bool
	// end checks the node, after its pod with a GPU may be evicted unless keeps is set.
	end func(e *env, node string)
}

func interventions() []intervention {
	done := func(e *env, node string) { e.awaitUpgraded(after, node) }
	cordonedAndDone := func(e *env, node string) {
		e.Eventually(func() bool { return e.watch.driver(node).runs(after) }).WithTimeout(upgradeTime).Should(BeTrue())
		e.awaitState(node, stateDone)
		e.Expect(e.watch.node(node).cordoned).To(BeTrue(), "a cordon of a user stays")
	}
	oldAndUsable := func(e *env, node string) {
		e.Eventually(func() bool { return e.watch.node(node).cordoned }).Should(BeFalse(), "a cordon of ours is undone")
		e.Expect(e.watch.driver(node).runs(before)).To(BeTrue())
		e.Expect(e.running("user-"+node)).To(HaveLen(1), "its pod keeps running")
	}
	return []intervention{
		{
			name:  "a node that was cordoned before is upgraded and stays cordoned",
			first: func(e *env, node string) { e.cordon(node, true) }, end: cordonedAndDone,
		},
		{
			name: "a node that is uncordoned fails with its old driver",
			then: func(e *env, node string) {
				e.cordon(node, false)
				e.awaitProgress(node, stateFailed, "UpgradeUncordoned")
			},
			keeps: true, end: oldAndUsable,
		},
		{
			name: "a node that is cordoned again by a user after its uncordon stays cordoned",
			then: func(e *env, node string) {
				e.cordon(node, false)
				e.awaitState(node, stateFailed)
				e.cordon(node, true)
				e.annotate(node, requestKey, "true")
			},
			end: cordonedAndDone,
		},
		{
			name: "a node that is deleted and added again is upgraded from the beginning",
			then: func(e *env, node string) {
				e.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
				e.Eventually(func() string { return e.watch.node(node).name }).Should(BeEmpty())
				e.addNode(node)
			},
			end: func(e *env, node string) {
				e.Eventually(func() bool { return e.watch.driver(node).runs(after) }).WithTimeout(upgradeTime).Should(BeTrue())
				e.Eventually(func() bool { return e.watch.node(node).gpuReady }).WithTimeout(upgradeTime).Should(BeTrue())
				// The driver pod may outlive the deleted node, and is then upgraded.
				e.Eventually(func() bool { return e.watch.node(node).cordoned }).WithTimeout(upgradeTime).Should(BeFalse())
			},
		},
		{
			name: "a node that does not report is held, and goes on afterwards",
			then: func(e *env, node string) {
				e.kubelet(node, corev1.ConditionFalse)
				e.awaitProgress(node, "held=true", "UpgradeNodeNotReady")
			},
			end: func(e *env, node string) {
				e.Expect(e.watch.driver(node).runs(before)).To(BeTrue(), "no step while the node does not report")
				e.kubelet(node, corev1.ConditionTrue)
				e.awaitUpgraded(after, node)
			},
		},
		{
			name: "a node that gets the label for skipping ends its upgrade",
			then: func(e *env, node string) {
				e.label(node, skipLabel, "true")
				e.awaitProgress(node, "UpgradeSkipped")
			},
			keeps: true,
			end: func(e *env, node string) {
				oldAndUsable(e, node)
				e.label(node, skipLabel, "")
				e.allow(node)
				done(e, node)
			},
		},
		{
			name: "a node that gets no operands any more ends its upgrade",
			then: func(e *env, node string) {
				e.label(node, "nvidia.com/gpu.deploy.operands", "false")
				e.Eventually(func() string { return e.watch.node(node).state }).Should(BeEmpty())
			},
			end: func(e *env, node string) {
				e.Eventually(func() bool { return e.watch.node(node).cordoned }).Should(BeFalse(), "a cordon of ours is undone")
				e.Eventually(func() map[string]string { return e.watch.node(node).annotations }).ShouldNot(HaveKey(recordKey),
					"it is removed once the slot is given back")
			},
		},
		{
			name: "a node that loses its GPUs ends its upgrade",
			then: (*env).loseGPUs,
			end: func(e *env, node string) {
				e.Eventually(func() map[string]string { return e.watch.node(node).labels }).WithTimeout(upgradeTime).Should(And(
					HaveKeyWithValue("nvidia.com/gpu.present", "false"), Not(HaveKey(stateLabel))))
				e.Expect(e.watch.node(node).cordoned).To(BeFalse(), "a cordon of ours is undone")
				e.Eventually(func() map[string]string { return e.watch.node(node).annotations }).ShouldNot(HaveKey(recordKey),
					"it is removed once the slot is given back")
			},
		},
	}
}

// loseGPUs removes the GPUs of a node, and with them its discovery labels.
func (e *env) loseGPUs(node string) {
	e.t.Helper()
	e.annotate(node, gpusAnnotation, "0")
	for key := range e.watch.node(node).labels {
		if strings.HasPrefix(key, discoveryPrefix) {
			e.label(node, key, "")
		}
	}
}

// TestInterventions: what a user does to a node during its upgrade is respected, and does not affect other nodes.
func TestInterventions(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	all := interventions()
	e := newEnv(t, envOptions{nodes: len(all) + 1, policy: budget(0, "100%")})
	for i, in := range all {
		// The PDB holds the upgrade where it evicts pods.
		e.deploy(workload{name: "user-" + nodeName(i), node: nodeName(i), gpus: "1"}, 1)
		e.protect("hold-"+nodeName(i), "user-"+nodeName(i))
		if in.first != nil {
			in.first(e, nodeName(i))
		}
	}
	e.edit(func(s *v1.ClusterPolicySpec) {
		s.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: 3 * time.Second}}
	})
	e.install(after)
	e.awaitUpgraded(after, nodeName(len(all)))
	for i, in := range all {
		t.Run(in.name, func(t *testing.T) {
			e, node := e.in(t), nodeName(i)
			e.awaitState(node, stateEviction)
			if in.then != nil {
				in.then(e, node)
			}
			if !in.keeps {
				e.allow(node)
			}
			in.end(e, node)
		})
	}
	e.writesNothing()
}

// allow removes the PDB that holds the upgrade of a node.
func (e *env) allow(node string) {
	e.t.Helper()
	e.remove(budgetOf("hold-" + node))
}

// kubelet sets the node's condition Ready. kwok keeps only nodes with its annotation ready.
func (e *env) kubelet(name string, status corev1.ConditionStatus) {
	e.t.Helper()
	if status == corev1.ConditionFalse {
		e.annotate(name, cluster.SimulatedNodeAnnotation, "none")
	}
	node := &corev1.Node{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
	e.Expect(e.client.Status().Patch(e.t.Context(), node, client.RawPatch(types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)))).To(Succeed())
	if status == corev1.ConditionTrue {
		e.annotate(name, cluster.SimulatedNodeAnnotation, cluster.SimulatedNodeValue)
	}
}

// TestSkippedBefore: a node with the label for skipping is not touched until the label is removed.
func TestSkippedBefore(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, policy: budget(0, "100%")})
	e.label(nodeName(0), skipLabel, "true")
	since := e.watch.now()
	e.install(after)
	e.awaitUpgraded(after, nodeName(1))
	e.awaitProgress(nodeName(0), "UpgradeSkipped")
	e.Expect(e.watch.cordons(since)).NotTo(HaveKey(nodeName(0)))
	e.Expect(e.watch.driver(nodeName(0)).runs(before)).To(BeTrue())
	e.label(nodeName(0), skipLabel, "")
	e.awaitUpgraded(after, nodeName(0))
	e.writesNothing()
}
