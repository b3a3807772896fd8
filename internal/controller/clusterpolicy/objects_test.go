package clusterpolicy

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

var _ = Describe("A spec that is invalid for one operand", func() {
	It("leaves what is there of it, and all else follows", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		old := daemonSet(ctx, driverName).Name
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.Driver = &v1.DriverSpec{PlacementSpec: v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{Name: "absent"}}}}
			spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
		})
		b.upgrade("22.04")
		b.pass(ctx, longer)
		Expect(b.writes()).To(ConsistOf(record, "delete DaemonSet "+exporterName, "delete Service "+exporterName))
		Expect(daemonSet(ctx, old)).NotTo(BeNil(), "the pool of its nodes is gone, but what should be there is unknown")
		b.converge(ctx)
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False InvalidSpec"), "as it was rendered once, and is kept")
		Expect(operandOf(policy, "driver")).To(And(
			HaveField("State", v1.OperandInvalid), HaveField("Message", ContainSubstring("there is no container absent")),
		))
		Expect(operandOf(policy, "device-plugin").State).To(Equal(v1.OperandReady))
		Expect(daemonSet(ctx, old)).NotTo(BeNil())
		b.edit(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = nil })
		b.settle(ctx)
		Expect(daemonSet(ctx, old)).To(BeNil())
	})
})

var _ = Describe("An object of another owner", func() {
	It("is left alone and looked at again, until it is gone", func(ctx SpecContext) {
		foreign := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: exporterName, Namespace: namespace},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		Expect(admin.Create(ctx, foreign)).To(Succeed())
		b.pass(ctx, 0)
		b.pass(ctx, longer)
		b.roll(ctx)
		b.assess(ctx)
		Expect(b.pass(ctx, longer)).To(Equal(30 * time.Second))
		policy := b.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Conflict"))
		Expect(operandOf(policy, "dcgm-exporter").State).To(Equal(v1.OperandConflict))
		Expect(operandOf(policy, "device-plugin").State).To(Equal(v1.OperandReady))
		found := &corev1.Service{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(foreign), found)).To(Succeed())
		Expect(found.Labels).NotTo(HaveKey(labels.Operand))

		Expect(admin.Delete(ctx, foreign)).To(Succeed())
		b.taken()
		Expect(b.pass(ctx, 30*time.Second)).To(BeZero())
		Expect(b.writes()).To(ContainElement("apply Service " + exporterName))
		b.settle(ctx)
	})
})

var _ = Describe("A DaemonSet that another writer changes", func() {
	It("is repaired in the next pass", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		ds := daemonSet(ctx, pluginName)
		wanted := ds.Spec.Template.Spec.Containers[0].Image
		ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:v1"
		Expect(admin.Update(ctx, ds)).To(Succeed())
		b.pass(ctx, 0)
		Expect(b.writes()).To(ConsistOf("apply DaemonSet " + pluginName))
		Expect(daemonSet(ctx, pluginName).Spec.Template.Spec.Containers[0].Image).To(Equal(wanted))
		b.settle(ctx)
	})
})

var _ = Describe("The placement of a DaemonSet that another writer changes", func() {
	term := corev1.PreferredSchedulingTerm{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "a", Operator: corev1.NodeSelectorOpExists},
	}}}
	DescribeTable("is exact, and what was repaired is in an Event", func(ctx SpecContext, by, name, field string, change func(*corev1.PodSpec)) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		ds := daemonSet(ctx, name)
		wanted := ds.Spec.Template.DeepCopy()
		change(&ds.Spec.Template.Spec)
		ds.Spec.Template.Spec.Containers[0].VolumeMounts = append(ds.Spec.Template.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: ds.Spec.Template.Spec.Volumes[0].Name, MountPath: "/added"})
		wanted.Spec.Containers[0].VolumeMounts = ds.Spec.Template.Spec.Containers[0].VolumeMounts
		Expect(admin.Update(ctx, ds, client.FieldOwner("somebody"))).To(Succeed())
		b.pass(ctx, 0)
		Expect(daemonSet(ctx, name).Spec.Template).To(Equal(*wanted), "what does not decide where pods run stays")
		list := &corev1.EventList{}
		Expect(admin.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(ContainElement(And(
			HaveField("Reason", v1.ReasonPlacementRepaired), HaveField("Type", corev1.EventTypeWarning), HaveField("InvolvedObject.Kind", "ClusterPolicy"),
			HaveField("Message", HavePrefix("DaemonSet "+name+": "+by+" had changed spec.template.spec."+field+", which decides")),
		)))
		b.settle(ctx)
	},
		Entry("a key of a nodeSelector", "field manager somebody", pluginName, "nodeSelector[example.com/team]", func(pod *corev1.PodSpec) { pod.NodeSelector["example.com/team"] = "a" }),
		Entry("a nodeSelector where there is none", "field manager somebody", driverName, "nodeSelector", func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"team": "a"} }),
		Entry("a preference", "field manager somebody", driverName, "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", func(pod *corev1.PodSpec) {
			pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{term}
		}),
		Entry("another term", "field manager somebody", driverName, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", func(pod *corev1.PodSpec) {
			required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, term.Preference)
		}),
		Entry("a toleration less", "another client", pluginName, "tolerations", func(pod *corev1.PodSpec) { pod.Tolerations = nil }),
		Entry("a toleration more", "field manager somebody", pluginName, "tolerations", func(pod *corev1.PodSpec) {
			pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}),
	)
})

var _ = Describe("Pods that cannot be created", func() {
	It("are explained to the nodes by Events, which are read when they are due", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.settle(ctx)
		b.refusePods(ctx, pluginName)
		Expect(b.pass(ctx, 0)).To(Equal(5*time.Second), "the DaemonSet controller may be about to make it")
		Expect(b.taken()).NotTo(ContainElement(call{what: "live list Event"}))
		Expect(b.pass(ctx, 5*time.Second)).To(Equal(2*time.Second), "nodes are assessed by another basis now")
		Expect(b.taken()).To(ContainElement(call{what: "live list Event"}))
		Expect(b.fleet.Basis().Stack.CreateFailures).To(HaveKeyWithValue(pluginName, HaveField("Reason", v1.ReasonQuotaExceeded)))
	})
})

// upgrade has all nodes have another version of their operating system, which is another driver pool.
func (b *bed) upgrade(version string) {
	for _, node := range b.nodes {
		node.Labels[labels.DiscoveryOSVersion] = version
		entry := *b.fleet.Get(node.Name)
		entry.Facts = observe.Facts(node)
		b.fleet.Set(&entry)
	}
}

// refusePods is the DaemonSet controller that may create no pod of the DaemonSet.
func (b *bed) refusePods(ctx context.Context, name string) {
	GinkgoHelper()
	ds := daemonSet(ctx, name)
	ds.Status.CurrentNumberScheduled = 0
	Expect(admin.Status().Update(ctx, ds)).To(Succeed())
	Expect(admin.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "refused", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: namespace, Name: ds.Name, UID: ds.UID},
		Reason:         "FailedCreate", Type: corev1.EventTypeWarning,
		Message:       `Error creating: pods "x" is forbidden: exceeded quota: none`,
		LastTimestamp: metav1.NewTime(b.clock.Now()),
	})).To(Succeed())
}
