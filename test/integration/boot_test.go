package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestStartupTaintOverAReboot: a node boots. The kubelet refuses the pods that had GPUs, whatever the taints; the
// start-up taint is back before GPUs can be allocated, keeps off the pods that replace them, and is removed once the
// GPUs have been validated in this boot. What was refused is reported, and deleted where the spec says so: pods of this
// boot that a controller owns, no others.
func TestStartupTaintOverAReboot(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.3)})
	e.ownTaints(ownTaint)
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: startingNode, Taints: []corev1.Taint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule},
	}})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	object := e.samplePolicy()
	object.Spec.NodeStartup = &v1.NodeStartupSpec{Taints: []v1.StartupTaint{
		{Key: ownTaint, Effect: corev1.TaintEffectNoSchedule},
	}}
	e.create(object)
	e.awaitReady(1)
	e.Expect(e.taints()).To(BeEmpty())
	bare, train := e.runGPUPod("bare", startingNode), e.train()
	e.Eventually(e.trainings).Should(ConsistOf(corev1.PodRunning))

	e.reboot()
	e.Eventually(e.trainings).Should(ConsistOf(corev1.PodFailed, corev1.PodRunning), "it is replaced")
	e.Eventually(e.startingReady).Should(And(HaveField("Reason", "GPUPodsRefused"), HaveField("Message",
		ContainSubstring("refused 2 pods with GPUs: default/bare, default/"+train.Name))))
	first := e.failedTrainings()

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodeStartup.CleanFailedPods = new(true) })
	e.reboot()
	e.Eventually(e.trainings).Should(ConsistOf(corev1.PodFailed, corev1.PodRunning), "one of two has been deleted")
	e.Eventually(e.failedTrainings).Should(Equal(first), "that of an earlier boot stays")
	e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(bare), bare)).To(Succeed(), "no controller owns it")
	e.Expect(bare.DeletionTimestamp).To(BeNil())
	e.Eventually(e.startingReady).Should(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "GPUReady")),
		"nothing of this boot is left")
}

// reboot reboots the node, and waits until its GPUs can be used again. It makes a bounded number of writes.
func (e *env) reboot() {
	e.t.Helper()
	mark := e.mark()
	// The times of refusals have whole seconds.
	e.Consistently(e.startingReady).WithTimeout(2 * time.Second).Should(HaveField("Status", corev1.ConditionTrue))
	e.Expect(e.operatorCalls(mark).Of("nodes").Writes()).To(BeEmpty(), "at rest")
	e.Expect(e.sim.Reboot(e.t.Context(), startingNode)).To(Succeed())
	var booted *corev1.Node
	e.Eventually(func() []string {
		booted = e.node(startingNode)
		return taintsOf(booted)
	}).Should(Equal([]string{ownTaint + ":NoSchedule"}))
	e.Expect(booted.Status.Allocatable).To(HaveKeyWithValue(
		corev1.ResourceName("nvidia.com/gpu"), HaveField("String()", "0")), "not before the taint")
	e.Eventually(e.taints).Should(BeEmpty())
	e.Eventually(e.startingReady).Should(HaveField("Status", corev1.ConditionTrue))
	writes := len(e.operatorCalls(mark).Of("nodes").Writes())
	e.t.Logf("the operator made %d writes to the node during the boot", writes)
	e.Expect(writes).To(BeNumerically("<=", 6))
}

func (e *env) startingReady() *corev1.NodeCondition { return nodeCondition(e.node(startingNode)) }

// train creates a ReplicaSet of one pod with a GPU.
func (e *env) train() *appsv1.ReplicaSet {
	labels := map[string]string{"app": "train"}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "train"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: gpuPod("", startingNode).Spec,
			},
		},
	}
	e.create(set)
	return set
}

func (e *env) trainingPods() []corev1.Pod {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods, client.MatchingLabels{"app": "train"})).To(Succeed())
	return pods.Items
}

// trainings returns the phases of the pods of the ReplicaSet.
func (e *env) trainings() []corev1.PodPhase {
	e.t.Helper()
	var phases []corev1.PodPhase
	for _, pod := range e.trainingPods() {
		phases = append(phases, pod.Status.Phase)
	}
	return phases
}

// failedTrainings returns the names of those that have failed.
func (e *env) failedTrainings() []string {
	e.t.Helper()
	var names []string
	for _, pod := range e.trainingPods() {
		if pod.Status.Phase == corev1.PodFailed {
			names = append(names, pod.Name)
		}
	}
	return names
}
