package integration

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	validatorApp  = "nvidia-operator-validator"
	pluginProver  = "plugin-validation"
	workloadClass = "gpu-operator-validation"
	// usersPod holds all GPUs of the node.
	usersPod = "training"
)

// TestTheWorkloadCheckOnAFreeAndAFullNode: with WITH_WORKLOAD=true a node is ready once a pod got one of
// its GPUs through the scheduler and computed on it, or where users have them all.
func TestTheWorkloadCheckOnAFreeAndAFullNode(t *testing.T) {
	t.Parallel()
	gpuNode, standIn, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, bedOptions{
		timing:   simulator.DefaultTiming().Scale(0.2),
		programs: host.Programs{GPUNode: gpuNode, StandIn: standIn},
	})
	if err := b.sim.CanRunProcesses(); err != nil {
		t.Skip(err)
	}
	_, err = b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: realNode, Processes: true, Undiscovered: true})
	b.Expect(err).NotTo(HaveOccurred())
	policy := b.samplePolicy()
	policy.Spec.Validator = &v1.ValidatorSpec{Plugin: &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "WITH_WORKLOAD", Value: "true"}}}}
	followed := b.followWorkloads()
	b.run()
	b.create(policy)

	for _, stage := range []struct {
		name string
		run  func(*realBed, *workloads)
	}{
		{"on a free node a pod computes on a GPU", (*realBed).freeNode},
		{"a node whose GPUs are all in use passes, and its users notice nothing", (*realBed).fullNode},
	} {
		if !t.Run(stage.name, func(t *testing.T) {
			stage.run(&realBed{bed: b.in(t), host: b.sim.Host(realNode), gpuNode: gpuNode}, followed)
		}) {
			b.logProcesses()
			return
		}
	}
}

func (b *realBed) freeNode(followed *workloads) {
	b.awaitReady(1)
	b.says(ContainSubstring("GPUs can be used"))
	b.Expect(b.present()).To(ContainElement(labels.MarkerPlugin))
	b.proverSaid("a pod got a GPU and computed on it")
	b.Expect(b.host.Log(workloadApp, pluginProver)).To(ContainSubstring("the kernel ran"), "what the pod computed")

	b.Expect(followed.created()).To(HaveLen(1))
	created := followed.created()[0]
	b.Expect(created.Name).To(Equal(workloadName(realNode)))
	b.Expect(created.Spec.NodeName).To(BeEmpty(), "the scheduler places it")
	b.Expect(created.Spec.PriorityClassName).To(Equal(workloadClass))
	b.Expect(created.Spec.Containers[0].Resources.Limits).To(HaveKeyWithValue(corev1.ResourceName("nvidia.com/gpu"), resource.MustParse("1")))
	b.Expect(created.OwnerReferences).To(HaveExactElements(HaveField("UID", b.podOn(validatorApp, realNode).UID)))
	last := followed.last()
	b.Expect(last.Spec.NodeName).To(Equal(realNode))
	b.Expect(last.Status.Phase).To(Equal(corev1.PodSucceeded))
	b.Eventually(b.workloadNames).WithTimeout(held).Should(BeEmpty(), "nothing reads a pod that has succeeded")
}

// fullNode has a user take all GPUs, then the validator prove anew.
func (b *realBed) fullNode(followed *workloads) {
	all := b.node(realNode).Status.Allocatable["nvidia.com/gpu"]
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: usersPod},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/training:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": all}}}}},
	}
	b.create(user)
	before := b.usersPodRuns()
	validator := b.podOn(validatorApp, realNode)
	b.deletePod(validatorApp, realNode)

	b.Eventually(func() *corev1.Pod { return b.podOn(validatorApp, realNode) }).WithTimeout(time.Minute).Should(And(
		Not(BeNil()), HaveField("UID", Not(Equal(validator.UID))), WithTransform(podReady, BeTrue())))
	b.awaitReady(1)
	b.says(ContainSubstring("GPUs can be used"))
	b.Expect(b.present()).To(ContainElement(labels.MarkerPlugin))
	b.proverSaid("all GPUs are in use, which shows that they can be allocated; no workload was run")

	b.Expect(followed.created()).To(HaveLen(2))
	last := followed.last()
	b.Expect(last.UID).To(Equal(followed.created()[1].UID))
	b.Expect(last.Spec.NodeName).To(BeEmpty(), "it was never placed")
	b.Expect(last.Status.NominatedNodeName).To(BeEmpty(), "nor was anybody to make room for it")
	b.Eventually(b.workloadNames).WithTimeout(held).Should(BeEmpty())
	after := b.usersPodRuns()
	b.Expect(after.UID).To(Equal(before.UID))
	b.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion), "nobody touched the user's pod")
	b.Expect(b.validatorCalls().Forbidden().String()).To(BeEmpty(), "the shipped rights must do, and the fence be wide enough")
}

// usersPodRuns waits until the user's pod runs on the node, and returns it.
func (b *realBed) usersPodRuns() *corev1.Pod {
	b.t.Helper()
	var pod *corev1.Pod
	admin := kubernetes.NewForConfigOrDie(b.cluster.Config)
	b.Eventually(func(g Gomega) {
		var err error
		pod, err = admin.CoreV1().Pods(metav1.NamespaceDefault).Get(b.t.Context(), usersPod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Spec.NodeName).To(Equal(realNode))
		g.Expect(pod.DeletionTimestamp).To(BeNil())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
	}).WithTimeout(held).WithPolling(50 * time.Millisecond).Should(Succeed())
	return pod
}

// proverSaid requires the words in the log of the prover of the device plugin.
func (b *realBed) proverSaid(what string) {
	b.t.Helper()
	b.Expect(b.host.Log(validatorApp, pluginProver)).To(ContainSubstring(what))
}

// validatorCalls are the calls of the validator's pods.
func (b *bed) validatorCalls() cluster.Calls {
	b.t.Helper()
	calls, err := b.cluster.Since(0)
	b.Expect(err).NotTo(HaveOccurred())
	return calls.By(cluster.ServiceAccountUser(namespace, validatorAccount))
}

// workloads are the pods that checks have made, as they were seen.
type workloads struct {
	lock sync.Mutex
	// first holds each pod as it was created, lasts the last state of each.
	first []*corev1.Pod
	lasts map[types.UID]*corev1.Pod
}

// followWorkloads follows the pods that checks make from now on, which have an owner.
func (b *bed) followWorkloads() *workloads {
	b.t.Helper()
	events, err := kubernetes.NewForConfigOrDie(b.cluster.Config).CoreV1().Pods(namespace).
		Watch(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + workloadApp})
	b.Expect(err).NotTo(HaveOccurred())
	b.t.Cleanup(events.Stop)
	w := &workloads{lasts: map[types.UID]*corev1.Pod{}}
	go func() {
		for event := range events.ResultChan() {
			w.see(event)
		}
	}()
	return w
}

func (w *workloads) see(event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok || len(pod.OwnerReferences) == 0 {
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if event.Type == watch.Added {
		w.first = append(w.first, pod)
	}
	w.lasts[pod.UID] = pod
}

// created are the pods as they were created.
func (w *workloads) created() []*corev1.Pod {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.first)
}

// last is the last state of the latest pod; one without a name where there was none.
func (w *workloads) last() *corev1.Pod {
	w.lock.Lock()
	defer w.lock.Unlock()
	if len(w.first) == 0 {
		return &corev1.Pod{}
	}
	return w.lasts[w.first[len(w.first)-1].UID]
}
