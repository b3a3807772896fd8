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
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// repairTime is how soon damage to an owned object must be undone.
const repairTime = 2 * time.Second

const (
	pluginName = "nvidia-device-plugin-daemonset"
	driverName = "nvidia-driver-daemonset"
)

// TestRepairs: what is deleted comes back, what is edited is set right, what others add stays.
func TestRepairs(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "mig", Labels: map[string]string{"nvidia.com/mig.capable": "true"}})
	b.Expect(err).NotTo(HaveOccurred())
	b.awaitReady(3)
	t.Run("a deleted object comes back", func(t *testing.T) {
		b := b.in(t)
		for _, object := range []client.Object{
			&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pluginName}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-gpu-clients"}},
			&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia-legacy"}},
		} {
			b.Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			uid := object.GetUID()
			b.Expect(b.client.Delete(t.Context(), object)).To(Succeed())
			b.repaired(object, func(g Gomega) { g.Expect(object.GetUID()).NotTo(Equal(uid)) })
		}
		b.awaitReady(3)
	})
	t.Run("an edited field is set right and a foreign one survives", func(t *testing.T) { editedFieldIsSetRight(b.in(t)) })
	t.Run("a removed label is put back", func(t *testing.T) {
		b := b.in(t)
		ds := b.daemonSet(pluginName)
		b.Expect(b.edit(ds, func() { delete(ds.Labels, "app.kubernetes.io/managed-by") })).To(Succeed())
		b.repaired(ds, func(g Gomega) {
			g.Expect(ds.Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "gpu-operator"))
		})
	})
}

// repaired reads the object until the check holds, for as long as a repair may take.
func (b *bed) repaired(object client.Object, check func(Gomega)) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		g.Expect(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
		check(g)
	}).WithTimeout(repairTime).WithPolling(20 * time.Millisecond).Should(Succeed())
}

func (b *bed) daemonSet(name string) *appsv1.DaemonSet {
	b.t.Helper()
	ds := &appsv1.DaemonSet{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ds)).To(Succeed())
	return ds
}

func editedFieldIsSetRight(b *bed) {
	ds := b.daemonSet(driverName)
	image := ds.Spec.Template.Spec.Containers[0].Image
	b.Expect(b.edit(ds, func() {
		ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:1"
		ds.Labels["team"] = "hpc"
		ds.Annotations["example.com/note"] = "kept"
		ds.Spec.Template.Annotations["example.com/pod-note"] = "kept"
	})).To(Succeed())
	b.repaired(ds, func(g Gomega) {
		g.Expect(ds.Spec.Template.Spec.Containers[0].Image).To(Equal(image))
	})
	b.Expect(ds.Labels).To(HaveKeyWithValue("team", "hpc"))
	b.Expect(ds.Annotations).To(HaveKeyWithValue("example.com/note", "kept"))
	b.Expect(ds.Spec.Template.Annotations).To(HaveKeyWithValue("example.com/pod-note", "kept"))
}

// TestForeignObjectIsNotTouched: an object of a name that the operator needs, which somebody else
// made, is reported and left as it is; the other operands are installed all the same.
func TestForeignObjectIsNotTouched(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
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
	b.create(foreign)
	version := foreign.Generation
	b.run()
	b.create(b.samplePolicy())
	b.Eventually(func(g Gomega) {
		object := &v1.ClusterPolicy{}
		g.Expect(b.client.Get(t.Context(), client.ObjectKey{Name: policy}, object)).To(Succeed())
		g.Expect(object.Status.Operands).To(ContainElement(And(
			HaveField("Name", "device-plugin"), HaveField("State", v1.OperandConflict), HaveField("Message", ContainSubstring(pluginName)))))
		g.Expect(object.Status.Operands).To(ContainElement(And(HaveField("Name", "driver"), HaveField("State", v1.OperandReady))))
		g.Expect(object.Status.Conditions).To(ContainElement(And(
			HaveField("Type", v1.ConditionReady), HaveField("Reason", v1.ReasonConflict))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
	live := b.daemonSet(pluginName)
	b.Expect(live.Generation).To(Equal(version))
	b.Expect(live.Labels).NotTo(HaveKey("app.kubernetes.io/managed-by"))
	b.Expect(live.OwnerReferences).To(BeEmpty())
	b.Expect(b.client.Delete(t.Context(), live)).To(Succeed())
	// No event tells the operator of an object that is not its own: it looks every 30 s.
	b.awaitReady(1)
}

// TestWithoutAPolicyNothingIsTouched: labels that an administrator wrote are no leftovers.
func TestWithoutAPolicyNothingIsTouched(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 0, timing: simulator.DefaultTiming().Scale(0.1)})
	own := map[string]string{"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.device-plugin": "true"}
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "labelled", Labels: own})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	b.quietSince("without a policy", b.mark(), 3*time.Second)
	for key, value := range own {
		b.Expect(b.node("labelled").Labels).To(HaveKeyWithValue(key, value))
	}
}

// TestOrphansAreAdopted: a policy that was deleted with --cascade=orphan and is made anew takes its
// objects back, without replacing a pod.
func TestOrphansAreAdopted(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	b.stop()
	before := b.podOn("nvidia-driver-daemonset", "gpu-00000")
	b.Expect(b.client.Delete(t.Context(), b.policy(), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	b.Eventually(func() []metav1.OwnerReference { return b.daemonSet(driverName).OwnerReferences }).
		WithTimeout(garbageTime).WithPolling(time.Second).Should(BeEmpty())
	// The garbage collector lets the policy go once it has been through all kinds.
	b.Eventually(func() error { return b.client.Create(t.Context(), b.samplePolicy()) }).WithTimeout(garbageTime).Should(Succeed())
	b.run()
	b.awaitReady(1)
	b.Expect(b.daemonSet(driverName).OwnerReferences).To(HaveLen(1))
	b.Expect(b.podOn("nvidia-driver-daemonset", "gpu-00000")).To(HaveField("UID", before.UID))
}

// TestOrphansRunOnWithTheOperatorRunning: a policy that is deleted with --cascade=orphan unloads no driver, and its nodes
// are released once the DaemonSets are deleted, too.
func TestOrphansRunOnWithTheOperatorRunning(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	pods := func() map[string]types.UID {
		list, found := &corev1.PodList{}, map[string]types.UID{}
		b.Expect(b.client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		for _, pod := range list.Items {
			found[pod.Name] = pod.UID
		}
		return found
	}
	before := pods()
	b.Expect(before).NotTo(BeEmpty())
	for range 3 {
		b.Expect(b.client.Delete(t.Context(), b.policy(), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		b.awaitNoPolicy()
		b.quietSince("after the policy", b.mark(), 2*time.Second)
		b.Expect(pods()).To(Equal(before))
		b.create(b.samplePolicy())
		b.awaitReady(2)
		b.Expect(pods()).To(Equal(before))
	}

	b.Expect(b.client.Delete(t.Context(), b.policy(), client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	b.awaitNoPolicy()
	b.Expect(b.client.DeleteAllOf(t.Context(), &appsv1.DaemonSet{}, client.InNamespace(namespace))).To(Succeed())
	b.Eventually(func() map[string]string { return b.node("gpu-00000").Labels }).WithPolling(200 * time.Millisecond).
		Should(And(Not(HaveKey(HavePrefix("nvidia.com/gpu.deploy."))), Not(HaveKey("nvidia.com/gpu-operator.pool"))))
}

// awaitNoPolicy returns once the garbage collector has let the policy go.
func (b *bed) awaitNoPolicy() {
	b.t.Helper()
	b.Eventually(func() []v1.ClusterPolicy {
		list := &v1.ClusterPolicyList{}
		b.Expect(b.client.List(b.t.Context(), list)).To(Succeed())
		return list.Items
	}).WithTimeout(garbageTime).WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

// TestDisabledOperandIsRemoved: off is the same path as on, and its objects go with all their pools.
func TestDisabledOperandIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04"})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	b.Expect(b.driverOf("ubuntu22.04-amd64").Spec.Template.Spec.Containers[0].Image).To(HaveSuffix("-ubuntu22.04"))
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver = &v1.DriverSpec{Enabled: new(false)} })
	b.Eventually(func(g Gomega) {
		list := &appsv1.DaemonSetList{}
		g.Expect(b.client.List(t.Context(), list, client.MatchingLabels{"nvidia.com/gpu-operator.operand": "driver"})).To(Succeed())
		g.Expect(list.Items).To(BeEmpty())
		g.Expect(b.policy().Status.Operands).To(ContainElement(And(HaveField("Name", "driver"),
			HaveField("State", v1.OperandDisabled), HaveField("Message", ContainSubstring("spec.driver.enabled is false")))))
	}).WithPolling(200 * time.Millisecond).Should(Succeed())
}
