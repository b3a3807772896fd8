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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	validatorApp  = "nvidia-operator-validator"
	pluginProver  = "plugin-validation"
	workloadClass = "gpu-operator-validation"
	// usersPod uses all GPUs of the node.
	usersPod = "training"
)

// TestTheWorkloadCheckOnAFreeAndAFullNode: with WITH_WORKLOAD=true a node is ready once a pod got one of its GPUs
// through the scheduler and computed on it, or if users have all of them.
func TestTheWorkloadCheckOnAFreeAndAFullNode(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	gpuNode, standIn, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, envOptions{
		timing:   simulator.DefaultTiming().Scale(0.2),
		programs: host.Programs{GPUNode: gpuNode, StandIn: standIn},
	})
	if err := e.sim.CanRunProcesses(); err != nil {
		needs.Unmet(t, needs.Root, err)
	}
	_, err = e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: realNode, Processes: true, Undiscovered: true})
	e.Expect(err).NotTo(HaveOccurred())
	policy := e.samplePolicy()
	policy.Spec.Validator = &v1.ValidatorSpec{
		Plugin: &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "WITH_WORKLOAD", Value: "true"}}},
	}
	followed := e.followWorkloads()
	e.run()
	e.create(policy)

	for _, stage := range []struct {
		name string
		run  func(*realNodeEnv, *workloads)
	}{
		{"on a free node a pod computes on a GPU", (*realNodeEnv).freeNode},
		{"a node whose GPUs are all in use passes, without affecting its users", (*realNodeEnv).fullNode},
	} {
		if !t.Run(stage.name, func(t *testing.T) {
			stage.run(&realNodeEnv{env: e.in(t), host: e.sim.Host(realNode), gpuNode: gpuNode}, followed)
		}) {
			e.logProcesses()
			return
		}
	}
}

func (e *realNodeEnv) freeNode(followed *workloads) {
	e.awaitReady(1)
	e.reports(ContainSubstring("GPUs can be used"))
	e.Expect(e.present()).To(ContainElement(labels.MarkerPlugin))
	e.proverLogged("a pod got a GPU and computed on it")
	e.Expect(e.host.Log(testPodApp, pluginProver)).To(ContainSubstring("the kernel ran"), "what the pod computed")

	e.Expect(followed.created()).To(HaveLen(1))
	created := followed.created()[0]
	e.Expect(created.Name).To(Equal(testPodName(realNode)))
	e.Expect(created.Spec.NodeName).To(BeEmpty(), "the scheduler places it")
	e.Expect(created.Spec.PriorityClassName).To(Equal(workloadClass))
	e.Expect(created.Spec.Containers[0].Resources.Limits).To(HaveKeyWithValue(corev1.ResourceName("nvidia.com/gpu"),
		resource.MustParse("1")))
	e.Expect(created.OwnerReferences).To(HaveExactElements(HaveField("UID", e.podOn(validatorApp, realNode).UID)))
	last := followed.last()
	e.Expect(last.Spec.NodeName).To(Equal(realNode))
	e.Expect(last.Status.Phase).To(Equal(corev1.PodSucceeded))
	e.Eventually(e.workloadNames).WithTimeout(held).Should(BeEmpty(), "a succeeded pod is not read")
}

// fullNode lets a user take all GPUs, then makes the validator run again.
func (e *realNodeEnv) fullNode(followed *workloads) {
	all := e.node(realNode).Status.Allocatable["nvidia.com/gpu"]
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: usersPod},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/training:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": all}}}}},
	}
	e.create(user)
	before := e.usersPodRuns()
	validator := e.podOn(validatorApp, realNode)
	e.deletePod(validatorApp, realNode)

	e.Eventually(func() *corev1.Pod { return e.podOn(validatorApp, realNode) }).WithTimeout(time.Minute).Should(And(
		Not(BeNil()), HaveField("UID", Not(Equal(validator.UID))), WithTransform(podReady, BeTrue())))
	e.awaitReady(1)
	e.reports(ContainSubstring("GPUs can be used"))
	e.Expect(e.present()).To(ContainElement(labels.MarkerPlugin))
	e.proverLogged("all GPUs are in use, which shows that they can be allocated; no test pod was run")

	e.Expect(followed.created()).To(HaveLen(2))
	last := followed.last()
	e.Expect(last.UID).To(Equal(followed.created()[1].UID))
	e.Expect(last.Spec.NodeName).To(BeEmpty(), "it was never placed")
	e.Expect(last.Status.NominatedNodeName).To(BeEmpty(), "nor was a pod preempted for it")
	e.Eventually(e.workloadNames).WithTimeout(held).Should(BeEmpty())
	after := e.usersPodRuns()
	e.Expect(after.UID).To(Equal(before.UID))
	e.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion), "the user's pod was not touched")
	e.Expect(e.validatorCalls().Forbidden().String()).To(BeEmpty(),
		"the shipped permissions must suffice, and the admission policy must permit the requests")
}

// usersPodRuns waits until the user's pod runs on the node, and returns it.
func (e *realNodeEnv) usersPodRuns() *corev1.Pod {
	e.t.Helper()
	var pod *corev1.Pod
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	e.Eventually(func(g Gomega) {
		var err error
		pod, err = admin.CoreV1().Pods(metav1.NamespaceDefault).Get(e.t.Context(), usersPod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Spec.NodeName).To(Equal(realNode))
		g.Expect(pod.DeletionTimestamp).To(BeNil())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady),
			HaveField("Status", corev1.ConditionTrue))))
	}).WithTimeout(held).WithPolling(50 * time.Millisecond).Should(Succeed())
	return pod
}

// proverLogged requires the text in the log of the device plugin's validation.
func (e *realNodeEnv) proverLogged(what string) {
	e.t.Helper()
	e.Expect(e.host.Log(validatorApp, pluginProver)).To(ContainSubstring(what))
}

// validatorCalls returns the requests of the validator's pods.
func (e *env) validatorCalls() cluster.Calls {
	e.t.Helper()
	calls, err := e.cluster.Since(e.begin)
	e.Expect(err).NotTo(HaveOccurred())
	return calls.By(cluster.ServiceAccountUser(namespace, validatorAccount))
}

// workloads are the observed pods of checks.
type workloads struct {
	lock sync.Mutex
	// first has each pod as it was created, lasts the last state of each.
	first []*corev1.Pod
	lasts map[types.UID]*corev1.Pod
}

// followWorkloads follows the pods that checks create from now on, which have an owner.
func (e *env) followWorkloads() *workloads {
	e.t.Helper()
	events, err := kubernetes.NewForConfigOrDie(e.cluster.Config).CoreV1().Pods(namespace).
		Watch(e.t.Context(), metav1.ListOptions{LabelSelector: "app=" + testPodApp})
	e.Expect(err).NotTo(HaveOccurred())
	e.t.Cleanup(events.Stop)
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

// created returns the pods as they were created.
func (w *workloads) created() []*corev1.Pod {
	w.lock.Lock()
	defer w.lock.Unlock()
	return slices.Clone(w.first)
}

// last returns the last state of the latest pod; one without a name if there was none.
func (w *workloads) last() *corev1.Pod {
	w.lock.Lock()
	defer w.lock.Unlock()
	if len(w.first) == 0 {
		return &corev1.Pod{}
	}
	return w.lasts[w.first[len(w.first)-1].UID]
}
