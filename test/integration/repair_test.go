package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// repairTime limits how long a test waits until drift of an owned object is repaired.
const repairTime = 20 * time.Second

const (
	pluginName = "nvidia-device-plugin-daemonset"
	driverName = "nvidia-driver-daemonset"
)

// TestRepairs: deleted objects are re-created, changed fields are repaired, added fields stay.
func TestRepairs(t *testing.T) {
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	_, err := e.sim.AddNode(t.Context(),
		simulator.NodeSpec{Name: "mig", Labels: map[string]string{"nvidia.com/mig.capable": "true"}})
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(3)
	t.Run("a deleted object is re-created", func(t *testing.T) {
		e := e.in(t)
		for _, object := range []client.Object{
			&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pluginName}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-gpu-clients"}},
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia-legacy"}},
		} {
			e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			uid := object.GetUID()
			e.Expect(e.client.Delete(t.Context(), object)).To(Succeed())
			e.repaired(object, func(g Gomega) { g.Expect(object.GetUID()).NotTo(Equal(uid)) })
		}
		e.awaitReady(3)
	})
	t.Run("a changed field is repaired and a foreign one stays", func(t *testing.T) { editedFieldIsSetRight(e.in(t)) })
	t.Run("a removed label is restored", func(t *testing.T) {
		e := e.in(t)
		ds := e.daemonSet(pluginName)
		e.Expect(e.edit(ds, func() { delete(ds.Labels, "app.kubernetes.io/managed-by") })).To(Succeed())
		e.repaired(ds, func(g Gomega) {
			g.Expect(ds.Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "gpu-operator"))
		})
	})
}

// repaired polls the object until the check succeeds, for at most repairTime.
func (e *env) repaired(object client.Object, check func(Gomega)) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
		check(g)
	}).WithTimeout(repairTime).WithPolling(20 * time.Millisecond).Should(Succeed())
}

func (e *env) daemonSet(name string) *appsv1.DaemonSet {
	e.t.Helper()
	ds := &appsv1.DaemonSet{}
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ds)).To(Succeed())
	return ds
}

func editedFieldIsSetRight(e *env) {
	ds := e.daemonSet(driverName)
	image := ds.Spec.Template.Spec.Containers[0].Image
	e.Expect(e.edit(ds, func() {
		ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:1"
		ds.Labels["team"] = "hpc"
		ds.Annotations["example.com/note"] = "kept"
		ds.Spec.Template.Annotations["example.com/pod-note"] = "kept"
	})).To(Succeed())
	e.repaired(ds, func(g Gomega) {
		g.Expect(ds.Spec.Template.Spec.Containers[0].Image).To(Equal(image))
	})
	e.Expect(ds.Labels).To(HaveKeyWithValue("team", "hpc"))
	e.Expect(ds.Annotations).To(HaveKeyWithValue("example.com/note", "kept"))
	e.Expect(ds.Spec.Template.Annotations).To(HaveKeyWithValue("example.com/pod-note", "kept"))
}

// TestForeignObjectIsNotTouched: a foreign object with a name that the operator needs is reported and not changed;
// the other operands are installed nevertheless.
func TestForeignObjectIsNotTouched(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	labels := map[string]string{"app": "mine"}
	foreign := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pluginName},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:   []corev1.Container{{Name: "main", Image: "example.com/mine:1"}},
					NodeSelector: map[string]string{"no": "node"},
				},
			},
		},
	}
	e.create(foreign)
	version := foreign.Generation
	e.run()
	e.create(e.samplePolicy())
	e.Eventually(func(g Gomega) {
		object := &v1.ClusterPolicy{}
		g.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
		g.Expect(object.Status.Operands).To(ContainElement(And(
			HaveField("Name", "device-plugin"), HaveField("State", v1.OperandConflict), HaveField("Message",
				ContainSubstring(pluginName)))))
		g.Expect(object.Status.Operands).To(ContainElement(And(HaveField("Name", "driver"),
			HaveField("State", v1.OperandReady))))
		g.Expect(object.Status.Conditions).To(ContainElement(And(
			HaveField("Type", v1.ConditionReady), HaveField("Reason", v1.ReasonConflict))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	live := e.daemonSet(pluginName)
	e.Expect(live.Generation).To(Equal(version))
	e.Expect(live.Labels).NotTo(HaveKey("app.kubernetes.io/managed-by"))
	e.Expect(live.OwnerReferences).To(BeEmpty())
	e.Expect(e.client.Delete(t.Context(), live)).To(Succeed())
	// The operator gets no events of foreign objects: it polls every 30 s.
	e.awaitReady(1)
}

// TestWithoutAPolicyNothingIsTouched: labels by an administrator are not leftovers.
func TestWithoutAPolicyNothingIsTouched(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	own := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "true"}
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "labelled", Labels: own})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.quietSince("without a policy", e.mark(), 3*time.Second)
	for key, value := range own {
		e.Expect(e.node("labelled").Labels).To(HaveKeyWithValue(key, value))
	}
}

// TestOrphansAreAdopted: a policy that was deleted with --cascade=orphan and is re-created adopts its objects,
// without replacing a pod.
func TestOrphansAreAdopted(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.stop()
	before := e.podOn("nvidia-driver-daemonset", "gpu-00000")
	e.Expect(e.client.Delete(t.Context(), e.policy(),
		client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	e.Eventually(func() []metav1.OwnerReference { return e.daemonSet(driverName).OwnerReferences }).
		WithTimeout(garbageTime).WithPolling(time.Second).Should(BeEmpty())
	// The garbage collector removes its finalizer once it has processed all kinds, and the operator its own once it runs.
	e.run()
	e.awaitNoPolicy()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.Expect(e.daemonSet(driverName).OwnerReferences).To(HaveLen(1))
	e.Expect(e.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
}

// TestOrphansRunOnWithTheOperatorRunning: deleting a policy with --cascade=orphan unloads no driver, and its nodes
// are released once the DaemonSets are deleted too.
func TestOrphansRunOnWithTheOperatorRunning(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	pods := func() map[string]types.UID {
		list, found := &corev1.PodList{}, map[string]types.UID{}
		e.Expect(e.client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		for _, pod := range list.Items {
			found[pod.Name] = pod.UID
		}
		return found
	}
	before := pods()
	e.Expect(before).NotTo(BeEmpty())
	for range 3 {
		e.Expect(e.client.Delete(t.Context(), e.policy(),
			client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		e.awaitNoPolicy()
		e.quietSince("after the policy", e.mark(), 2*time.Second)
		e.Expect(pods()).To(Equal(before))
		e.create(e.samplePolicy())
		e.awaitReady(2)
		e.Expect(pods()).To(Equal(before))
	}

	e.Expect(e.client.Delete(t.Context(), e.policy(),
		client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	e.awaitNoPolicy()
	e.Expect(e.client.DeleteAllOf(t.Context(), &appsv1.DaemonSet{}, client.InNamespace(namespace))).To(Succeed())
	e.Eventually(func() map[string]string { return e.node("gpu-00000").Labels }).WithPolling(200 * time.Millisecond).
		Should(And(Not(HaveKey(HavePrefix("nvidia.com/gpu.deploy."))), Not(HaveKey("nvidia.com/gpu-operator.pool"))))
}

// awaitNoPolicy returns once the garbage collector has removed the policy's finalizer.
func (e *env) awaitNoPolicy() {
	e.t.Helper()
	e.Eventually(func() []v1.ClusterPolicy {
		list := &v1.ClusterPolicyList{}
		e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
		return list.Items
	}).WithTimeout(garbageTime).WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

// TestDisabledOperandIsRemoved: the objects of a disabled operand are removed, for all pools.
func TestDisabledOperandIsRemoved(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04"})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	e.Expect(e.driverOf("ubuntu22.04-amd64").Spec.Template.Spec.Containers[0].Image).To(HaveSuffix("-ubuntu22.04"))
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(false)} })
	e.Eventually(func(g Gomega) {
		list := &appsv1.DaemonSetList{}
		g.Expect(e.client.List(t.Context(), list,
			client.MatchingLabels{"nvidia.com/gpu-operator.operand": "driver"})).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
		g.Expect(e.policy().Status.Operands).To(ContainElement(And(HaveField("Name", "driver"),
			HaveField("State", v1.OperandDisabled), HaveField("Message", ContainSubstring("spec.driver.enabled is false")))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}
