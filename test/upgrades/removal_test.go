package upgrades

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestRemovalDuringAnUpgrade: a policy is deleted while one node waits for a pod with a GPU, on another the new driver
// fails, on the next its validation, one waits for its turn, and one was cordoned by a user. The first one is held
// until the pod has ended. Then only the user's cordon is left, and without it the cluster is as
// it was before the policy.
func TestRemovalDuringAnUpgrade(t *testing.T) {
	cluster.SkipInSample(t)
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
		node := e.watch.node(name)
		e.Expect(node.cordoned).To(Equal(name == cordoned), "only the cordon of the user is left, on %s", name)
		e.Expect(ownKeys(node)).To(BeEmpty(), "labels and annotations of %s", name)
	}
	e.Eventually(e.stackObjects).Should(BeEmpty(), "the garbage collector may delete some after the policy")
	e.cordon(cordoned, false)
	e.label(waits, skipLabel, "")
	e.restored()
}

// ownKeys returns the labels and annotations of a node that the operator has written.
func ownKeys(node nodeVersion) []string {
	var found []string
	for _, all := range []map[string]string{node.labels, node.annotations} {
		for key := range all {
			for _, own := range []string{
				"nvidia.com/gpu-operator.", "nvidia.com/gpu.deploy.", "nvidia.com/gpu.present", "nvidia.com/gpu-driver-upgrade",
				"clusterpolicy.github.io/",
			} {
				if strings.HasPrefix(key, own) && key != skipLabel {
					found = append(found, key)
				}
			}
		}
	}
	return found
}

// stackObjects returns the DaemonSets, ConfigMaps and pods in the operator's namespace, but what Kubernetes puts there.
func (e *env) stackObjects() []string {
	e.t.Helper()
	var found []string
	for kind, list := range map[string]client.ObjectList{
		"DaemonSet": &appsv1.DaemonSetList{}, "ConfigMap": &corev1.ConfigMapList{}, "Pod": &corev1.PodList{},
	} {
		e.Expect(e.quiet.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		e.Expect(apimeta.EachListItem(list, func(item runtime.Object) error {
			object, err := apimeta.Accessor(item)
			if err == nil && object.GetName() != "kube-root-ca.crt" {
				found = append(found, kind+" "+object.GetName())
			}
			return err
		})).To(Succeed())
	}
	return found
}
