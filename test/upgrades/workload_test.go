package upgrades

import (
	"slices"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// workload describes pods of a user, all with the label app=NAME.
type workload struct {
	name string
	// node is the only node that the pods can run on.
	node string
	// gpus of each pod.
	gpus string
	// change completes the pod.
	change func(*corev1.Pod)
}

// pod returns a bare pod of the workload.
func (w workload) pod() *corev1.Pod {
	grace := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant, Name: w.name, Labels: map[string]string{"app": w.name}, Annotations: map[string]string{},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			NodeSelector:                  map[string]string{corev1.LabelHostname: w.node},
			Containers:                    []corev1.Container{{Name: "main", Image: "example.com/" + w.name}},
		},
	}
	if w.gpus != "" {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(w.gpus)}
	}
	if w.change != nil {
		w.change(pod)
	}
	return pod
}

// ignoringTerm makes a pod take its whole grace period.
func ignoringTerm(seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = &seconds
		pod.Annotations[simulator.IgnoresTermAnnotation] = "true"
	}
}

// labelled adds a label to a pod.
func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

// create creates an object of a user.
func (e *env) create(object client.Object) {
	e.t.Helper()
	e.Expect(e.client.Create(e.t.Context(), object)).To(Succeed())
}

// deploy creates pods of a ReplicaSet, so that evicted ones are replaced, and waits until they run.
func (e *env) deploy(w workload, replicas int32) {
	e.t.Helper()
	e.deployLater(w, replicas)
	e.awaitRunning(w.name, int(replicas))
}

// deployLater is deploy without waiting.
func (e *env) deployLater(w workload, replicas int32) {
	e.t.Helper()
	pod := w.pod()
	e.create(&appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: w.name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec,
			},
		},
	})
}

// deployEverywhere creates a DaemonSet.
func (e *env) deployEverywhere(w workload) {
	e.t.Helper()
	pod := w.pod()
	e.create(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: w.name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	})
	e.awaitRunning(w.name, 1)
}

// run creates a pod without a controller, and waits until it runs.
func (e *env) run(w workload) {
	e.t.Helper()
	e.create(w.pod())
	e.awaitRunning(w.name, 1)
}

func (e *env) awaitRunning(name string, pods int) {
	e.t.Helper()
	e.Eventually(func() []string { return e.running(name) }).Should(HaveLen(pods), "running pods of %s", name)
}

// running returns the UIDs of the running pods of a workload, sorted.
func (e *env) running(name string) []string {
	e.t.Helper()
	var found []string
	for _, pod := range e.podsOf(tenant, name) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			found = append(found, string(pod.UID))
		}
	}
	slices.Sort(found)
	return found
}

// users returns the UIDs of the running pods of the workloads user-NODE of the first nodes.
func (e *env) users(nodes int) []string {
	e.t.Helper()
	var all []string
	for _, name := range nodeNames(nodes) {
		all = append(all, e.running("user-"+name)...)
	}
	return all
}

// podsOf returns the pods with the label app=NAME in a namespace.
func (e *env) podsOf(in, app string) []corev1.Pod {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.quiet.List(e.t.Context(), pods, client.InNamespace(in), client.MatchingLabels{"app": app})).To(Succeed())
	return pods.Items
}

// protect creates a PodDisruptionBudget that allows no disruption of a workload.
func (e *env) protect(name, app string) {
	e.t.Helper()
	none := intstr.FromInt32(0)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &none, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	e.create(pdb)
	e.Eventually(func() int64 {
		e.Expect(e.quiet.Get(e.t.Context(), client.ObjectKeyFromObject(pdb), pdb)).To(Succeed())
		return pdb.Status.ObservedGeneration
	}).Should(BeNumerically(">", 0), "the disruption controller must have seen %s", name)
}

// remove deletes an object of a user.
func (e *env) remove(object client.Object) {
	e.t.Helper()
	e.Expect(e.client.Delete(e.t.Context(), object)).To(Succeed())
}

// removeDriver deletes the driver pod of a node, as an administrator does.
func (e *env) removeDriver(node string) {
	e.t.Helper()
	driver := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.watch.driver(node).name}}
	e.remove(driver)
}

// budgetOf and daemonSetOf name objects of a user.
func budgetOf(name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
}

func daemonSetOf(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
}
