package install

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestUninstallWaitsForThePolicies runs gpu-operator uninstall, as the hook of the chart does, without the operator:
// the test plays what that reports.
func TestUninstallWaitsForThePolicies(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 0)
	e.Expect(e.asAdmin("uninstall")).To(Equal(
		"There is no CustomResourceDefinition clusterpolicies.nvidia.com, and so no ClusterPolicy\n"))
	e.helm("install", release, chart, "--create-namespace", "--set", "operator.replicas=0")
	e.hold()
	second := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	e.Expect(e.client.Create(t.Context(), second)).To(Succeed())

	e.Expect(e.refused("nvidia-driver", "uninstall")).To(And(
		HavePrefix("gpu-operator: listing ClusterPolicies: "), ContainSubstring("forbidden")))
	e.Expect(e.policy().DeletionTimestamp).To(BeNil())

	mark, played := e.mark(), e.playHook("gpu-operator-uninstall")
	removed := make(chan error, 1)
	go func() {
		_, err := e.tryHelm("uninstall", release, "--timeout", "3m")
		removed <- err
	}()
	e.Eventually(func() any { return e.policy().DeletionTimestamp }).WithTimeout(time.Minute).ShouldNot(BeNil())
	e.report(metav1.ConditionFalse, "Removing", "removing the stack: 2 of 3 nodes left")
	e.report(metav1.ConditionFalse, "Removing", "removing the stack: 1 of 3 nodes left")
	e.Consistently(removed).WithTimeout(time.Second).ShouldNot(Receive(), "the operator stays until the policy is gone")
	e.abandon()
	e.Eventually(removed).WithTimeout(time.Minute).Should(Receive(BeNil()))
	e.Expect(played()).To(And(
		HavePrefix("Deleting ClusterPolicy cluster-policy\nDeleting ClusterPolicy second\n"),
		ContainSubstring("ClusterPolicy cluster-policy: waiting for the operator to begin\n"),
		ContainSubstring("ClusterPolicy cluster-policy: Removing: removing the stack: 1 of 3 nodes left\n"),
		ContainSubstring("ClusterPolicy second is gone\n"),
		HaveSuffix("ClusterPolicy cluster-policy is gone\nNo ClusterPolicy is left\n"),
	))
	calls, err := e.cluster.Since(mark)
	e.Expect(err).NotTo(HaveOccurred())
	hook := calls.By(cluster.ServiceAccountUser(namespace, "gpu-operator-uninstall"))
	e.Expect(hook.Of("clusterpolicies").String()).NotTo(BeEmpty())
	e.Expect(hook.Forbidden().String()).To(BeEmpty())
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).
		Should(onlyDefinitions())
	e.noHooks()
	e.uninstallSaysWhatIsLeft()
}

// uninstallSaysWhatIsLeft lets the removal last longer than the timeout.
func (e *env) uninstallSaysWhatIsLeft() {
	e.t.Helper()
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster-policy", Finalizers: []string{removalFinalizer, "example.com/audit"},
	}}
	e.Expect(e.client.Create(e.t.Context(), policy)).To(Succeed())
	uninstall := func() string {
		e.t.Helper()
		out, err := e.program(e.cluster.Kubeconfig(), "uninstall", "--timeout=10s")
		e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), out)
		return out
	}
	const still = "ClusterPolicy cluster-policy still exists after 10s: "
	e.Expect(uninstall()).To(ContainSubstring(still + "waiting for the operator to begin; " +
		"it also has the finalizers of others: example.com/audit\n" +
		"  check that the operator's pod is running, or finish without it: kubectl gpu cleanup\n"))
	e.report(metav1.ConditionFalse, "Removing", "removing the stack: 1 of 3 nodes left; node-b: held by team-a/train-0")
	e.Expect(uninstall()).To(And(
		ContainSubstring(still+"Removing: removing the stack: 1 of 3 nodes left; node-b: held by team-a/train-0; "),
		ContainSubstring("\n  the operator goes on: repeat the command to wait for the end, or finish without the operator: "+
			"kubectl gpu cleanup\n"),
	))
	// Cleanup takes its own finalizer off, and names the other one.
	out, err := e.kubectlGPU("", "cleanup", "--yes")
	e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), out)
	e.Expect(out).To(And(ContainSubstring("this is left"),
		ContainSubstring("cluster-policy (terminating), which then waits for the finalizers of others: example.com/audit")))
	e.Expect(slices.Contains(e.policy().Finalizers, removalFinalizer)).To(BeFalse())
	e.abandon()
	e.Expect(e.asAdmin("uninstall")).To(Equal("No ClusterPolicy is left\n"))
}

// report plays the operator, which reports on the policy.
func (e *env) report(status metav1.ConditionStatus, reason, message string) {
	e.t.Helper()
	policy := e.policy()
	before := policy.DeepCopy()
	meta.SetStatusCondition(&policy.Status.Conditions, metav1.Condition{
		Type: v1.ConditionReady, Status: status, Reason: reason, Message: message,
	})
	policy.Status.State = v1.StateNotReady
	e.Expect(e.client.Status().Patch(e.t.Context(), policy, client.MergeFrom(before))).To(Succeed())
}

// TestHelmUninstallLeavesNothing uninstalls while the operator runs, as users do; and without the hook and the
// operator, after which a second installation finishes the removal.
func TestHelmUninstallLeavesNothing(t *testing.T) {
	t.Parallel()
	begin, e := time.Now(), newEnv(t, 2)
	for _, name := range []string{"gpu-00000", "gpu-00001"} {
		e.labelNode(name, "nvidia.com/mig.capable", "true")
	}
	restored := cluster.Restored(t, e.cluster.Config)
	marks, err := e.markedNodes()
	e.Expect(err).NotTo(HaveOccurred())
	install := []string{"install", release, chart, "--create-namespace", "--set", "operator.nodeSelector.pool=none"}
	e.helm(install...)
	e.run(namespace)
	e.awaitReady()
	e.Expect(e.node("gpu-00000").Labels).To(HaveKeyWithValue("nvidia.com/mig.config", "all-disabled"))
	e.labelNode("gpu-00001", "nvidia.com/mig.config", "all-1g.10gb")
	played := e.playHook("gpu-operator-uninstall")
	e.helm("uninstall", release, "--timeout", "10m")
	e.Expect(e.node("gpu-00001").Labels).To(HaveKeyWithValue("nvidia.com/mig.config", "all-1g.10gb"), "a user's")
	e.labelNode("gpu-00001", "nvidia.com/mig.config", nil)
	e.Expect(played()).To(HaveSuffix("ClusterPolicy cluster-policy is gone\nNo ClusterPolicy is left\n"))
	e.Expect(e.markedNodes()).To(ConsistOf(marks))
	e.stop()
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).Should(onlyDefinitions())

	e.helm(install...)
	e.run(namespace)
	e.awaitReady()
	e.stop()
	e.helm("uninstall", release, "--no-hooks")
	e.Expect(e.policy()).To(HaveField("DeletionTimestamp", Not(BeNil())))
	e.helm(append(install, "--set", "clusterPolicy.deployCR=false")...)
	e.run(namespace)
	e.Eventually(e.policy).WithTimeout(time.Minute).Should(BeNil())
	e.Expect(e.markedNodes()).To(ConsistOf(marks))
	e.stop()
	e.helm("uninstall", release, "--timeout", "10s") // Without the policy in the values there is no hook.
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).Should(onlyDefinitions())
	// The commands that docs/install.md names after it.
	e.kubectl("delete", "crd", "clusterpolicies.nvidia.com", "nvidiadrivers.nvidia.com")
	e.kubectl("delete", "namespace", namespace)
	restored()
	t.Logf("in %s", time.Since(begin).Round(100*time.Millisecond))
}

// TestUndeployLeavesNothing installs and removes by make deploy and make undeploy, as README and docs/install.md do.
// Meanwhile the policy is replaced by force: it is deleted, with its stack, and then created again.
func TestUndeployLeavesNothing(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	begin, e := time.Now(), newEnv(t, 2)
	restored := cluster.Restored(t, e.cluster.Config)
	e.make("deploy", "IMG=registry.example.com/gpu-operator:v1.2.3")
	e.run(namespace)
	e.kubectl("apply", "-f", filepath.Join(repo, "config/samples/clusterpolicy.yaml"))
	e.awaitReady()
	replaced, pods := e.policy().UID, e.pods()
	e.kubectl("replace", "--force", "--timeout=3m", "-f", filepath.Join(repo, "config/samples/clusterpolicy.yaml"))
	e.Expect(e.policy().UID).NotTo(Equal(replaced))
	e.awaitReady()
	for name := range e.pods() {
		e.Expect(pods).NotTo(HaveKey(name), "the stack was removed first")
	}
	e.make("undeploy")
	e.stop()
	restored()
	t.Logf("in %s", time.Since(begin).Round(100*time.Millisecond))
}

func (e *env) node(name string) *corev1.Node {
	e.t.Helper()
	node := &corev1.Node{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}

// labelNode sets a label of a node; nil removes it.
func (e *env) labelNode(name, key string, value any) {
	e.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Patch(e.t.Context(), e.node(name), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// make runs a target of the Makefile on the cluster.
func (e *env) make(args ...string) {
	e.t.Helper()
	runMake(e.t.Context(), e.WithT, []string{"KUBECONFIG=" + e.cluster.Kubeconfig()}, args...)
}

// runMake runs make with these variables beside those of the test.
func runMake(ctx context.Context, g *WithT, variables []string, args ...string) {
	cmd := exec.CommandContext(ctx, "make", append([]string{"-C", repo}, args...)...)
	cmd.Env = append(os.Environ(), variables...)
	out, err := cmd.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
}
