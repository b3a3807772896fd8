package install

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// removalFinalizer is the operator's finalizer of the active policy.
const removalFinalizer = "nvidia.com/gpu-operator.removal"

// plugin builds the plugin of kubectl once for all tests.
var plugin = sync.OnceValues(func() (string, error) {
	return cluster.BuildPlugin(context.Background(), os.Stderr)
})

// kubectlGPU runs the plugin by the pinned kubectl, as users do, with the given standard input.
func (e *env) kubectlGPU(in string, args ...string) (string, error) {
	e.t.Helper()
	binary, err := plugin()
	e.Expect(err).NotTo(HaveOccurred())
	path := e.t.TempDir()
	cmd, err := cluster.PluginCommand(e.t.Context(), repo, binary, path, args...)
	e.Expect(err).NotTo(HaveOccurred())
	cmd.Stdin = strings.NewReader(in)
	cmd.Env = []string{"KUBECONFIG=" + e.cluster.Kubeconfig(), "HOME=" + e.tool.Home, "PATH=" + path}
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// hold adds the operator's finalizer to the policy, if it is not there.
func (e *env) hold() {
	e.t.Helper()
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		policy := e.policy()
		if slices.Contains(policy.Finalizers, removalFinalizer) {
			return nil
		}
		policy.Finalizers = append(policy.Finalizers, removalFinalizer)
		return e.client.Update(e.t.Context(), policy)
	})).To(Succeed())
}

// TestCleanupFinishesWithoutTheOperator uninstalls the release without its hooks: the policy stays Terminating, until
// kubectl gpu cleanup removes it and everything else.
func TestCleanupFinishesWithoutTheOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	begin, e := time.Now(), newEnv(t, 2)
	e.helm("install", release, chart, "--create-namespace", "--set", "operator.replicas=0")
	e.run(namespace)
	e.awaitReady()
	e.hold()
	e.stop()
	e.helm("uninstall", release, "--no-hooks")
	e.Expect(e.policy()).To(HaveField("DeletionTimestamp", Not(BeNil())))
	daemonSets := e.daemonSets(namespace)
	e.Expect(daemonSets).NotTo(BeEmpty(), "the stack still runs")

	e.refusesCleanup(daemonSets)
	e.cleansUp(daemonSets)
	out, err := e.kubectlGPU("", "cleanup")
	e.Expect(err).NotTo(HaveOccurred(), out)
	e.Expect(out).To(Equal("Nothing of the GPU stack is left in the cluster.\n"))
	t.Logf("in %s", time.Since(begin).Round(100*time.Millisecond))
}

// TestCleanupRemovesAPolicyThatNobodyDeleted removes the policy of an operator that is gone, with its stack, in order:
// without the finalizer the garbage collector would do it in none.
func TestCleanupRemovesAPolicyThatNobodyDeleted(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 2)
	e.helm("install", release, chart, "--create-namespace", "--set", "operator.replicas=0,psa.enabled=true")
	e.run(namespace)
	e.awaitReady()
	e.Expect(e.podSecurity()).To(HaveLen(3))
	e.stop()
	daemonSets := e.daemonSets(namespace)
	policy := e.policy()
	policy.Finalizers = nil
	e.Expect(e.client.Update(e.t.Context(), policy)).To(Succeed())
	e.cleansUp(daemonSets)
	e.Expect(e.podSecurity()).To(BeEmpty())
	e.helm("uninstall", release, "--no-hooks")
	e.Eventually(e.ownObjects).WithTimeout(time.Minute).
		Should(onlyDefinitions())
	e.deleteDefinition()
	out, err := e.kubectlGPU("", "cleanup")
	e.Expect(err).NotTo(HaveOccurred(), out)
}

// podSecurity returns the labels of the namespace for Pod Security Admission.
func (e *env) podSecurity() map[string]string {
	e.t.Helper()
	own := &corev1.Namespace{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: namespace}, own)).To(Succeed())
	found := maps.Clone(own.Labels)
	maps.DeleteFunc(found, func(key, _ string) bool { return !strings.HasPrefix(key, "pod-security.kubernetes.io/") })
	return found
}

// TestCleanupAfterTheNamespaceIsDeleted deletes the namespace with the operator and all operands in it.
func TestCleanupAfterTheNamespaceIsDeleted(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 2)
	e.helm("install", release, chart, "--create-namespace", "--set", "operator.replicas=0,psa.enabled=true")
	e.run(namespace)
	e.awaitReady()
	e.hold()
	e.stop()
	e.kubectl("delete", "namespace", namespace)
	e.Expect(e.policy().DeletionTimestamp).To(BeNil())
	e.Expect(e.markedNodes()).NotTo(BeEmpty())
	out, err := e.kubectlGPU("", "cleanup", "--yes")
	e.Expect(err).NotTo(HaveOccurred(), out)
	e.Expect(out).To(HaveSuffix("Nothing of the GPU stack is left in the cluster.\n"))
	e.Expect(e.policy()).To(BeNil())
	e.Expect(e.markedNodes()).To(BeEmpty())
	runtimeClasses := &nodev1.RuntimeClassList{}
	e.Expect(e.client.List(t.Context(), runtimeClasses)).To(Succeed())
	e.Expect(runtimeClasses.Items).To(BeEmpty())
}

// refusesCleanup tries all that cleanup refuses: nothing changes.
func (e *env) refusesCleanup(daemonSets []string) {
	e.t.Helper()
	ctx := e.t.Context()
	marks, err := e.markedNodes()
	e.Expect(err).NotTo(HaveOccurred())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "53822513.nvidia.com"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("gpu-operator-1"), LeaseDurationSeconds: new(int32(3600)),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	e.Expect(e.client.Create(ctx, lease)).To(Succeed())
	busy := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train-0"},
		Spec: corev1.PodSpec{NodeName: "gpu-00001", Containers: []corev1.Container{{
			Name: "train", Image: "train",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
		}}},
	}
	e.Expect(e.client.Create(ctx, busy)).To(Succeed())
	for _, args := range [][]string{{"--yes"}, {"--dry-run"}} {
		out, err := e.kubectlGPU("", append([]string{"cleanup"}, args...)...)
		e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), out)
		e.Expect(out).To(And(
			ContainSubstring("These pods may use GPUs:\n  gpu-00001: default/train-0\n"),
			ContainSubstring("an operator is running (lease gpu-operator/53822513.nvidia.com is held by gpu-operator-1)"),
			ContainSubstring("GPUs are in use on 1 node"),
			ContainSubstring("--force removes the stack nevertheless"),
		))
	}
	e.Expect(e.client.Delete(ctx, lease)).To(Succeed())
	e.Expect(e.client.Delete(ctx, busy, client.GracePeriodSeconds(0))).To(Succeed())
	for in, want := range map[string]string{"": "add --yes", "n\n": "not confirmed, and nothing was changed"} {
		out, err := e.kubectlGPU(in, "cleanup")
		e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), out)
		e.Expect(out).To(And(ContainSubstring("Remove all of this? [y/N]: "), ContainSubstring(want)))
	}
	out, err := e.kubectlGPU("", "cleanup", "--dry-run")
	e.Expect(err).NotTo(HaveOccurred(), out)
	e.Expect(out).To(And(
		ContainSubstring("Delete the ClusterPolicies:\n  cluster-policy (terminating)\n"),
		ContainSubstring("DaemonSet gpu-operator/nvidia-driver-daemonset\n"),
		ContainSubstring("\n  RuntimeClass nvidia\n"),
		ContainSubstring("Remove from nodes:\n  gpu-00000, gpu-00001\n    labels clusterpolicy.github.io/"),
		ContainSubstring("    condition nvidia.com/GPUReady\n"),
	))
	e.Expect(e.daemonSets(namespace)).To(ConsistOf(daemonSets))
	e.Expect(e.markedNodes()).To(ConsistOf(marks))
}

// cleansUp runs cleanup, which removes the operands in the order of the graph, and leaves nothing.
func (e *env) cleansUp(daemonSets []string) {
	e.t.Helper()
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(e.t.Context(), nodes)).To(Succeed())
	for i := range nodes.Items {
		node := &nodes.Items[i]
		before := node.DeepCopy()
		node.Labels["nvidia.com/gpu.workload.config"] = "container"
		node.Annotations["nvidia.com/example"] = "a user's"
		e.Expect(e.client.Patch(e.t.Context(), node, client.MergeFrom(before))).To(Succeed())
	}
	out, err := e.kubectlGPU("y\n", "cleanup")
	e.Expect(err).NotTo(HaveOccurred(), out)
	e.Expect(out).To(HaveSuffix("Nothing of the GPU stack is left in the cluster.\n"))
	at := func(name string) int {
		e.Expect(daemonSets).To(ContainElement(name))
		return strings.Index(out, "\nDeleting DaemonSet gpu-operator/"+name+"\n")
	}
	e.Expect(at("nvidia-device-plugin-daemonset")).To(BeNumerically("<", at("nvidia-container-toolkit-daemonset")), out)
	e.Expect(at("nvidia-container-toolkit-daemonset")).To(BeNumerically("<", at("nvidia-driver-daemonset")), out)
	e.Expect(e.policy()).To(BeNil())
	e.Expect(e.daemonSets(namespace)).To(BeEmpty())
	e.Expect(e.pods()).To(BeEmpty())
	e.Expect(e.markedNodes()).To(HaveEach(Or(
		HaveSuffix("label nvidia.com/gpu.workload.config"), HaveSuffix("annotation nvidia.com/example"),
	)))
}
