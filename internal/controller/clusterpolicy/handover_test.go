package clusterpolicy

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

var _ = Describe("The driver of NVIDIA's operator", func() {
	var env *testEnv

	// label changes the labels of the node; an empty value removes one.
	label := func(key, value string) {
		node := env.nodes[0]
		if node.Labels[key] = value; value == "" {
			delete(node.Labels, key)
		}
		entry := *env.fleet.Get(node.Name)
		entry.Facts = observe.Facts(node)
		env.fleet.Set(&entry)
	}
	// selected are the terms by which the DaemonSet selects nodes.
	selected := func(ctx context.Context) []corev1.NodeSelectorTerm {
		GinkgoHelper()
		affinity := daemonSet(ctx, driverName).Spec.Template.Spec.Affinity
		return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}

	It("is held until its nodes have an anchor, and keeps nodes whose anchor may be unseen", func(ctx SpecContext) {
		const deploy, anchor = "nvidia.com/gpu.deploy.driver", labels.AnchorPrefix + "driver"
		env = newEnv(migNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		ours := selected(ctx)
		label(deploy, labels.True)
		ds := daemonSet(ctx, driverName)
		ds.Annotations = nil
		Expect(admin.Update(ctx, ds, client.FieldOwner(labels.NVIDIAFieldManager))).To(Succeed())

		env.pass(ctx, statusInterval)
		env.reportStatus(ctx)
		Expect(daemonSet(ctx, driverName).Annotations).NotTo(HaveKey(labels.Digest), "held")
		Expect(operandOf(env.policy(ctx), "driver")).To(And(
			HaveField("State", v1.OperandWaiting), HaveField("Reason", v1.ReasonNotTakenOver),
			HaveField("Message", ContainSubstring("node a ")),
		))

		label(anchor, "ubuntu24.04-amd64")
		env.pass(ctx, statusInterval)
		Expect(selected(ctx)).To(HaveLen(len(ours)+1), "also nodes without an anchor")
		env.pass(ctx, statusInterval)
		Expect(selected(ctx)).To(HaveLen(len(ours)+1), "until the DaemonSet controller follows")
		env.settle(ctx)
		Expect(selected(ctx)).To(Equal(ours))
	})

	It("is taken over from an NVIDIADriver object, whichever call fails", func(ctx SpecContext) {
		env = newEnv(migNode("a"))
		object := &v1alpha1.NVIDIADriver{}
		object.Name, object.Spec.Default = "default", true
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		theirs := nvidiasDrivers(ctx, object, "one", "two")
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}})
		failedPatch := env.failOnce("patch ConfigMap", 1)
		Eventually(func() []operand.NVIDIADriver {
			_, _ = env.reconcileAfter(ctx, time.Second)
			return env.fleet.Basis().Decisions.Input.NVIDIADrivers
		}).ShouldNot(BeEmpty())
		Expect(failedPatch().op).To(Equal("patch ConfigMap"))
		env.pass(ctx, statusInterval)
		env.reportStatus(ctx)
		Expect(operandOf(env.policy(ctx), "driver")).To(And(HaveField("Reason", v1.ReasonNotTakenOver),
			HaveField("Message", ContainSubstring("pod one is on node a, whose driver pool"))))

		label(labels.Pool, "ubuntu24.04-amd64")
		for _, fails := range []struct {
			op  string
			nth int
		}{
			{"live list Pod", 1}, {"live list DaemonSet", 1}, {"patch DaemonSet", 1}, {"delete DaemonSet", 1},
			// The first one reads which names are in use.
			{"live get DaemonSet", 2}, {"live get ConfigMap", 1},
		} {
			failed := env.failOnce(fails.op, fails.nth)
			_, _ = env.reconcileAfter(ctx, statusInterval)
			Expect(failed().op).To(Equal(fails.op))
		}
		env.onCall(nil)
		env.pass(ctx, statusInterval)
		Expect(exists(ctx, &appsv1.DaemonSet{}, driverName)).To(BeFalse(), "until NVIDIA's are gone")
		for _, ds := range theirs {
			// As the garbage collector does.
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(ds), ds)).To(Succeed())
			Expect(ds.Finalizers).To(Equal([]string{metav1.FinalizerOrphanDependents}))
			ds.Finalizers = nil
			Expect(admin.Update(ctx, ds)).To(Succeed())
		}
		pod := &corev1.Pod{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "one"}, pod)).To(Succeed())
		pod.OwnerReferences = nil
		Expect(admin.Update(ctx, pod)).To(Succeed())
		failed := env.failOnce("patch Pod", 1)
		_, _ = env.reconcileAfter(ctx, statusInterval)
		Expect(failed().op).To(Equal("patch Pod"))
		env.pass(ctx, statusInterval)
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(pod.Labels).To(And(HaveKeyWithValue(labels.Operand, "driver"), HaveKeyWithValue(labels.App, driverName)))
		Expect(daemonSet(ctx, driverName).Annotations).To(HaveKeyWithValue(labels.ProbeScriptMounted, labels.True))

		script := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: labels.ProbeScript}, script)).To(Succeed())
		Expect(metav1.GetControllerOf(script).UID).To(Equal(env.policy(ctx).UID), "it outlives the object")
		Expect(admin.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		env.takeCalls()
		env.pass(ctx, statusInterval)
		env.takeCalls()
		Expect(admin.Delete(ctx, daemonSet(ctx, driverName))).To(Succeed())
		env.pass(ctx, statusInterval)
		Expect(env.takeCalls()).NotTo(ContainElement(call{op: "live list DaemonSet"}), "nothing is left")
	})

	It("of an NVIDIADriver object is deleted where no driver is wanted, once it runs nowhere", func(ctx SpecContext) {
		env = newEnv(migNode("a"))
		object := &v1alpha1.NVIDIADriver{}
		object.Name, object.Spec.Default = "default", true
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
		ds := nvidiasDrivers(ctx, object, "one")[0]
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}})
		env.converge(ctx)
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(ds), ds)).To(Succeed(), "it runs on a node")
		ds.Status = appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation}
		Expect(admin.Status().Update(ctx, ds)).To(Succeed())
		Eventually(func() bool {
			env.pass(ctx, statusInterval)
			return exists(ctx, &appsv1.DaemonSet{}, "one")
		}).Should(BeFalse())
	})
})

// nvidiasDrivers creates driver DaemonSets of an NVIDIADriver object with these names, a pod of the first one on node
// a, and the script that it mounts.
func nvidiasDrivers(ctx context.Context, object *v1alpha1.NVIDIADriver, names ...string) []*appsv1.DaemonSet {
	GinkgoHelper()
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(object, v1alpha1.NVIDIADriverKind)}
	script := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: labels.ProbeScript, OwnerReferences: owner},
	}
	Expect(admin.Create(ctx, script)).To(Succeed())
	var all []*appsv1.DaemonSet
	for _, name := range names {
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: "nvcr.io/nvidia/driver:1-ubuntu24.04"}},
		}}
		template.Labels = map[string]string{labels.App: name, labels.Component: labels.DriverComponent}
		volume := corev1.Volume{Name: "script"}
		volume.ConfigMap = &corev1.ConfigMapVolumeSource{}
		volume.ConfigMap.Name = labels.ProbeScript
		template.Spec.Volumes = []corev1.Volume{volume}
		ds := &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, OwnerReferences: owner, Labels: template.Labels,
				Annotations: map[string]string{labels.NVIDIAHash: "1"},
			},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labels.App: name}}, Template: template,
			},
		}
		Expect(admin.Create(ctx, ds)).To(Succeed())
		all = append(all, ds)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: names[0], Labels: all[0].Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(all[0], appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
		},
	}, Spec: *all[0].Spec.Template.Spec.DeepCopy()}
	pod.Spec.NodeName = "a"
	Expect(admin.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		for _, ds := range all {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, ds))).To(Succeed())
			Expect(cluster.DropFinalizers(ctx, admin, ds)).To(Succeed())
		}
		Expect(client.IgnoreNotFound(admin.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
		Expect(client.IgnoreNotFound(admin.Delete(ctx, script))).To(Succeed())
	})
	return all
}
