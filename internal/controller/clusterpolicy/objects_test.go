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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var _ = Describe("A spec that is invalid for one operand", func() {
	It("keeps the objects of that operand and applies all others", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		old := daemonSet(ctx, driverName).Name
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) {
			spec.Driver = &v1.DriverSpec{
				PlacementSpec: v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{Name: "absent"}}},
			}
			spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
		})
		env.setOSVersion("22.04")
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf(
			specRecordWrite, "delete DaemonSet "+exporterName, "delete Service "+exporterName,
		))
		Expect(daemonSet(ctx, old)).NotTo(BeNil(), "its pool has no nodes, but the operand is invalid")
		env.converge(ctx)
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False InvalidSpec"), "its last objects are kept")
		Expect(operandOf(policy, "driver")).To(And(
			HaveField("State", v1.OperandInvalid), HaveField("Message", ContainSubstring("there is no container absent")),
		))
		Expect(operandOf(policy, "device-plugin").State).To(Equal(v1.OperandReady))
		Expect(daemonSet(ctx, old)).NotTo(BeNil())
		env.editSpec(ctx, func(spec *v1.ClusterPolicySpec) { spec.Driver = nil })
		env.settle(ctx)
		Expect(daemonSet(ctx, old)).To(BeNil())
	})
})

var _ = Describe("A DaemonSet that the API server refuses", func() {
	It("is reported with the fields of the spec that decide about it", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{
			DaemonSets: &v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}},
			DevicePlugin: &v1.DevicePluginSpec{PlacementSpec: v1.PlacementSpec{Annotations: v1.Annotations{
				corev1.SeccompPodAnnotationKey: v1.AnnotationValue(corev1.SeccompProfileNameUnconfined),
			}}},
		})
		env.converge(ctx)
		Expect(operandOf(env.policy(ctx), "device-plugin")).To(And(
			HaveField("State", v1.OperandInvalid),
			HaveField("Message", HavePrefix("spec.daemonsets.podSecurityContext: applying DaemonSet")),
		))
		Expect(daemonSet(ctx, exporterName)).NotTo(BeNil(), "others are applied")
	})
})

var _ = Describe("An object of another owner", func() {
	It("is left alone and checked again until it is deleted", func(ctx SpecContext) {
		foreign := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: exporterName, Namespace: namespace},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		Expect(admin.Create(ctx, foreign)).To(Succeed())
		env.pass(ctx, 0)
		env.pass(ctx, statusInterval)
		env.rollOut(ctx)
		env.assessNodes(ctx)
		Expect(env.pass(ctx, statusInterval)).To(Equal(30 * time.Second))
		policy := env.policy(ctx)
		Expect(condition(policy, v1.ConditionReady)).To(Equal("False Conflict"))
		Expect(operandOf(policy, "dcgm-exporter").State).To(Equal(v1.OperandConflict))
		Expect(operandOf(policy, "device-plugin").State).To(Equal(v1.OperandReady))
		found := &corev1.Service{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(foreign), found)).To(Succeed())
		Expect(found.Labels).NotTo(HaveKey(labels.Operand))

		Expect(admin.Delete(ctx, foreign)).To(Succeed())
		env.takeCalls()
		Expect(env.pass(ctx, 30*time.Second)).To(BeZero())
		Expect(env.takeWrites()).To(ContainElement("apply Service " + exporterName))
		env.settle(ctx)
	})
})

var _ = Describe("A DaemonSet that another writer changes", func() {
	It("is repaired in the next pass", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		ds := daemonSet(ctx, pluginName)
		wanted := ds.Spec.Template.Spec.Containers[0].Image
		ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:v1"
		Expect(admin.Update(ctx, ds)).To(Succeed())
		env.pass(ctx, 0)
		Expect(env.takeWrites()).To(ConsistOf("apply DaemonSet "+pluginName, HavePrefix("create Event policy.")))
		Expect(daemonSet(ctx, pluginName).Spec.Template.Spec.Containers[0].Image).To(Equal(wanted))
		env.settle(ctx)
	})
})

var _ = Describe("A ConfigMap of the operator that a user edits", func() {
	It("is restored, with an Event that says what to do instead", func(ctx SpecContext) {
		node := gpuNode("a")
		node.Labels["nvidia.com/mig.capable"] = "true"
		env := newEnv(node)
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		layouts := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: namespace, Name: "default-mig-parted-config"}
		Expect(admin.Get(ctx, key, layouts)).To(Succeed())
		wanted := layouts.Data["config.yaml"]
		layouts.Data["config.yaml"] = "version: v1\nmig-configs: {}\n"
		Expect(admin.Update(ctx, layouts, client.FieldOwner("kubectl-edit"))).To(Succeed())
		env.pass(ctx, 0)
		Expect(admin.Get(ctx, key, layouts)).To(Succeed())
		Expect(layouts.Data["config.yaml"]).To(Equal(wanted))
		list := &corev1.EventList{}
		Expect(admin.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(ContainElement(And(
			HaveField("Reason", v1.ReasonEditReverted), HaveField("Type", corev1.EventTypeWarning),
			HaveField("Message", Equal("ConfigMap default-mig-parted-config: field manager kubectl-edit changed "+
				"data[config.yaml]. The operator has reverted the change: set spec.migManager.config.name to a ConfigMap "+
				"of your own instead")),
		)))
		env.settle(ctx)
	})
})

var _ = Describe("The placement of a DaemonSet that another writer changes", func() {
	term := corev1.PreferredSchedulingTerm{
		Weight: 1,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "a", Operator: corev1.NodeSelectorOpExists},
		}},
	}
	DescribeTable("is restored exactly, and reported by an Event", func(
		ctx SpecContext, by, name, field string, change func(*corev1.PodSpec),
	) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		ds := daemonSet(ctx, name)
		wanted := ds.Spec.Template.DeepCopy()
		change(&ds.Spec.Template.Spec)
		ds.Spec.Template.Spec.Containers[0].VolumeMounts = append(ds.Spec.Template.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: ds.Spec.Template.Spec.Volumes[0].Name, MountPath: "/added"})
		wanted.Spec.Containers[0].VolumeMounts = ds.Spec.Template.Spec.Containers[0].VolumeMounts
		Expect(admin.Update(ctx, ds, client.FieldOwner("other"))).To(Succeed())
		env.pass(ctx, 0)
		Expect(daemonSet(ctx, name).Spec.Template).To(Equal(*wanted), "fields that do not affect placement are kept")
		list := &corev1.EventList{}
		Expect(admin.List(ctx, list)).To(Succeed())
		Expect(list.Items).To(ContainElement(And(
			HaveField("Reason", v1.ReasonPlacementRepaired),
			HaveField("Type", corev1.EventTypeWarning),
			HaveField("InvolvedObject.Kind", "ClusterPolicy"),
			HaveField(
				"Message",
				HavePrefix("DaemonSet "+name+": "+by+" changed spec.template.spec."+field+", which decides"),
			),
		)))
		env.settle(ctx)
	},
		Entry(
			"an added key of the nodeSelector",
			"field manager other",
			pluginName,
			"nodeSelector[example.com/team]",
			func(pod *corev1.PodSpec) { pod.NodeSelector["example.com/team"] = "a" },
		),
		Entry(
			"a new nodeSelector",
			"field manager other",
			driverName,
			"nodeSelector",
			func(pod *corev1.PodSpec) { pod.NodeSelector = map[string]string{"team": "a"} },
		),
		Entry(
			"a preference",
			"field manager other",
			driverName,
			"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
			func(pod *corev1.PodSpec) {
				pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{term}
			},
		),
		Entry(
			"an additional term",
			"field manager other",
			driverName,
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
			func(pod *corev1.PodSpec) {
				required := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
				required.NodeSelectorTerms = append(required.NodeSelectorTerms, term.Preference)
			},
		),
		Entry(
			"a removed toleration",
			"another client",
			pluginName,
			"tolerations",
			func(pod *corev1.PodSpec) { pod.Tolerations = nil },
		),
		Entry("an added toleration", "field manager other", pluginName, "tolerations", func(pod *corev1.PodSpec) {
			pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}),
	)
})

var _ = Describe("Pods that cannot be created", func() {
	It("are reported with the reason from Events, which are listed after a delay", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.settle(ctx)
		env.failPodCreation(ctx, pluginName)
		Expect(env.pass(ctx, 0)).To(Equal(5*time.Second), "the DaemonSet controller may be about to create it")
		Expect(env.takeCalls()).NotTo(ContainElement(call{op: "live list Event"}))
		Expect(env.pass(ctx, 5*time.Second)).To(Equal(2*time.Second), "nodes are assessed by a new basis")
		Expect(env.takeCalls()).To(ContainElement(call{op: "live list Event"}))
		Expect(env.fleet.Basis().Stack.CreateFailures).To(
			HaveKeyWithValue(pluginName, HaveField("Reason", v1.ReasonQuotaExceeded)))
	})
})

// setOSVersion changes the version of the operating system of all nodes, and so their driver pool.
func (env *testEnv) setOSVersion(version string) {
	for _, node := range env.nodes {
		node.Labels[labels.DiscoveryOSVersion] = version
		entry := *env.fleet.Get(node.Name)
		entry.Facts = observe.Facts(node)
		env.fleet.Set(&entry)
	}
}

// failPodCreation acts as the DaemonSet controller when a quota rejects the pods of the DaemonSet.
func (env *testEnv) failPodCreation(ctx context.Context, name string) {
	GinkgoHelper()
	ds := daemonSet(ctx, name)
	ds.Status.CurrentNumberScheduled = 0
	Expect(admin.Status().Update(ctx, ds)).To(Succeed())
	Expect(admin.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "failed-create", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: namespace, Name: ds.Name, UID: ds.UID},
		Reason:         "FailedCreate", Type: corev1.EventTypeWarning,
		Message:       `Error creating: pods "x" is forbidden: exceeded quota: none`,
		LastTimestamp: metav1.NewTime(env.clock.Now()),
	})).To(Succeed())
}
