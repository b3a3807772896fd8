package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// An edit that only concerns how pods are scheduled or how their images are pulled makes no driver outdated, and no
// node waits for its driver. The driver's pods get it at their next restart, which the status reports.
func TestSchedulingEdits(t *testing.T) {
	cluster.SkipInSample(t)
	const nodes = 8
	t.Parallel()
	e := newEnv(t, envOptions{nodes: nodes, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(nodes)
	drivers := e.podsOf(string(driver.Name))
	e.Expect(drivers).To(HaveLen(nodes))
	for name, edit := range map[string]func(*v1.ClusterPolicySpec){
		"tolerations": func(spec *v1.ClusterPolicySpec) {
			daemonSets(spec).Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		},
		"the priority class": func(spec *v1.ClusterPolicySpec) {
			daemonSets(spec).PriorityClassName = "system-cluster-critical"
		},
		"resources of the driver": func(spec *v1.ClusterPolicySpec) {
			driverOf(spec).Resources = &v1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			}
		},
		"a pull secret": func(spec *v1.ClusterPolicySpec) { driverOf(spec).ImagePullSecrets = []string{"registry"} },
		"a mirror of the driver": func(spec *v1.ClusterPolicySpec) {
			driverOf(spec).Repository = "mirror.local/nvidia"
		},
		"a mirror of all images": func(spec *v1.ClusterPolicySpec) {
			spec.Global = &v1.GlobalSpec{Registry: "mirror.local"}
		},
		"a probe": func(spec *v1.ClusterPolicySpec) {
			driverOf(spec).LivenessProbe = &v1.ProbeSpec{PeriodSeconds: 17}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			before := e.daemonSet(driverApp).Generation
			e.respec(edit)
			e.Eventually(func() int64 { return e.daemonSet(driverApp).Generation }).Should(BeNumerically(">", before),
				"the DaemonSet has the change")
			e.Consistently(func(g Gomega) {
				policy := e.policy()
				ready := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionReady)
				// How long the replaced pod of another operand is missing depends on the machine.
				g.Expect(ready).To(Or(HaveField("Status", metav1.ConditionTrue), And(
					HaveField("Reason", v1.ReasonOperandNotReady), HaveField("Message", Not(ContainSubstring("(Driver:"))))))
				g.Expect(policy.Status.NodeSummary).To(HaveField("Upgrading", BeZero()))
			}, 5*time.Second, 50*time.Millisecond).Should(Succeed())
			e.awaitReady(nodes)
			e.Expect(e.podsOf(string(driver.Name))).To(Equal(drivers), "no driver was replaced")
		})
	}
	t.Run("the status reports what waits for a restart", func(t *testing.T) {
		e := e.in(t)
		e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).Should(ContainElement(And(
			HaveField("Name", string(driver.Name)), HaveField("State", v1.OperandReady),
			HaveField("Message", HavePrefix("pods on 8 of 8 nodes get changed tolerations")))))
		e.deletePod(driverApp, "gpu-00000")
		e.Eventually(func() map[string]types.UID { return e.podsOf(string(driver.Name)) }).Should(And(
			HaveLen(nodes), Not(Equal(drivers))))
		e.awaitReady(nodes)
		e.Eventually(func() []v1.OperandStatus { return e.policy().Status.Operands }).Should(ContainElement(And(
			HaveField("Name", string(driver.Name)), HaveField("Message", HavePrefix("pods on 7 of 8 nodes")))))
	})
}

func daemonSets(spec *v1.ClusterPolicySpec) *v1.DaemonSetsSpec {
	if spec.DaemonSets == nil {
		spec.DaemonSets = &v1.DaemonSetsSpec{}
	}
	return spec.DaemonSets
}

func driverOf(spec *v1.ClusterPolicySpec) *v1.DriverSpec {
	if spec.Driver == nil {
		spec.Driver = &v1.DriverSpec{}
	}
	return spec.Driver
}
