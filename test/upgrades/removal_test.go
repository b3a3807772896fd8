package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestRemovalDuringAnUpgrade: a policy is deleted while one node waits for a pod with a GPU, on another the new driver
// fails, on the next its validation, one waits for its turn, and one was cordoned by a user. The first one is held
// until the pod has ended. Then only the
// user's cordon is left, and the cluster is as it was before the policy.
func TestRemovalDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	const nodes = 5
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(0, "100%"), snapshot: true})
	busy, broken, invalid, waits, cordoned := nodeName(0), nodeName(1), nodeName(2), nodeName(3), nodeName(4)
	e.deploy(workload{name: "user", node: busy, gpus: "1"}, 1)
	e.protect("hold", "user")
	user := e.running("user")
	e.label(waits, skipLabel, "true")
	e.cordon(cordoned, true)
	e.sim.Break("driver", broken, simulator.CrashLoop)
	e.sim.Break("driver", cordoned, simulator.CrashLoop)
	e.sim.Break("operator-validator", invalid, simulator.ImagePull)
	e.install(after)
	e.awaitState(busy, stateEviction)
	e.awaitState(broken, stateRestart)
	e.awaitState(cordoned, stateRestart)
	e.awaitState(invalid, stateValidation)

	e.Expect(e.client.Delete(t.Context(), e.policy())).To(Succeed())
	e.Eventually(func() []v1.NodeStatus { return e.policy().Status.Nodes }).WithTimeout(upgradeTime).Should(ConsistOf(And(
		HaveField("Name", busy), HaveField("Reason", "RemovalHeld"), HaveField("Message", ContainSubstring("default/user")))))
	e.Expect(e.running("user")).To(Equal(user), "its GPUs are not taken away")
	e.remove(budgetOf("hold"))
	e.Expect(e.client.DeleteAllOf(t.Context(), &appsv1.ReplicaSet{}, client.InNamespace(tenant))).To(Succeed())
	e.Eventually(func() bool {
		err := e.quiet.Get(t.Context(), client.ObjectKey{Name: policyName}, &v1.ClusterPolicy{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(upgradeTime).Should(BeTrue(), "the policy is deleted")

	for _, name := range nodeNames(nodes) {
		e.Expect(e.watch.node(name).cordoned).To(Equal(name == cordoned), "only the cordon of the user is left, on %s", name)
	}
	e.cordon(cordoned, false)
	e.label(waits, skipLabel, "")
	e.Expect(cluster.AwaitSnapshot(t.Context(), e.cluster.SimulatorConfig, e.before)).To(Succeed())
}
