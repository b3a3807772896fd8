package upgrades

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// slotsName is the ConfigMap with the nodes that may be upgraded.
const slotsName = "gpu-operator-driver-upgrades"

// TestDeletedSlotsAreMadeAgain: the ConfigMap with the slots is made again from the Nodes, also while nothing else
// happens: the node that is being upgraded does not report, so no step is due.
func TestDeletedSlotsAreMadeAgain(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, policy: budget(1, "100%")})
	node := nodeName(0)
	e.deploy(workload{name: "user", node: node, gpus: "1"}, 1)
	e.protect("hold", "user")
	e.install(after)
	e.awaitState(node, stateEviction)
	e.kubelet(node, corev1.ConditionFalse)
	e.awaitProgress(node, "held=true", "UpgradeNodeNotReady")
	e.atRest()

	slots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: slotsName}}
	e.remove(slots)
	again := &corev1.ConfigMap{}
	e.Eventually(func() error { return e.client.Get(t.Context(), client.ObjectKeyFromObject(slots), again) }).
		WithTimeout(10 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	e.Expect(again.Data).To(HaveKey(node))

	e.kubelet(node, corev1.ConditionTrue)
	e.remove(budgetOf("hold"))
	e.awaitUpgraded(after, node)
}

// TestForgedSlots: slots that another client writes for the rounds that the nodes are in let no node begin beyond the
// budget. The nodes give them back.
func TestForgedSlots(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 3, policy: budget(1, "100%")})
	since := e.watch.now()
	holder := nodeName(0)
	e.deploy(workload{name: "user", node: holder, gpus: "1"}, 1)
	e.protect("hold", "user")
	e.install(after)
	e.awaitState(holder, stateEviction)
	for _, node := range nodeNames(3)[1:] {
		e.awaitState(node, stateRequired)
		round := e.round(node)
		e.writeSlot(node, fmt.Sprintf(`{"uid":"UID","round":%d}`, round))
		e.Eventually(func() int64 { return e.round(node) }).Should(BeNumerically(">", round), "it gives the slot back")
	}
	e.remove(budgetOf("hold"))
	e.awaitUpgraded(after, nodeNames(3)...)
	e.Expect(e.watch.most(since)).To(HaveLen(1), "nodes that were unavailable at a time")
}

// round is the round in the record of a node.
func (e *env) round(node string) int64 {
	e.t.Helper()
	var record struct {
		Round int64 `json:"round"`
	}
	e.Expect(json.Unmarshal([]byte(e.watch.node(node).annotations[recordKey]), &record)).To(Succeed())
	return record.Round
}
