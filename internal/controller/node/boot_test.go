package node

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// team is a taint that is not the operator's.
var team = corev1.Taint{Key: "example.com/team", Effect: corev1.TaintEffectNoSchedule}

// boot changes the boot ID of the node. Its kubelet has no devices until their plugin registers.
func (e *env) boot(id string) {
	e.t.Helper()
	node := e.node()
	node.Status.NodeInfo.BootID = id
	node.Status.Allocatable = nil
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			condition.LastTransitionTime = metav1.NewTime(e.clock.Now())
		}
	}
	e.Expect(e.client.Status().Update(e.t.Context(), node)).To(Succeed())
	e.setPod("operator-validator", starts)
}

// advertise makes the device plugin and the validator ready after a boot.
func (e *env) advertise() {
	e.t.Helper()
	node := e.node()
	node.Status.Allocatable = corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")}
	e.Expect(e.client.Status().Update(e.t.Context(), node)).To(Succeed())
	e.makeReady("operator-validator")
}

// settle reconciles until nothing changes any more, as the events of the writes make it.
func (e *env) settle() {
	e.t.Helper()
	for range 5 {
		_, err := e.reconcileAfter(time.Second)
		e.Expect(err).NotTo(HaveOccurred())
	}
}

// newBooted returns an env with a node of this boot on which GPUs can be used.
func newBooted(t *testing.T, id string, onFailure v1.OnFailure) *env {
	t.Helper()
	e := newEnv(t)
	node := e.node()
	node.Spec.Taints = []corev1.Taint{team, notReady}
	e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
	e.boot(id)
	e.advertise()
	e.spec.NodeStartup = new(startupSpec(onFailure))
	e.publish()
	e.settle()
	e.Expect(e.node().Spec.Taints).To(ConsistOf(team))
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	return e
}

// bootOf is the recorded boot of a node.
func bootOf(want types.GomegaMatcher) types.GomegaMatcher {
	return WithTransform(func(node *corev1.Node) string { return node.Annotations[labels.ReadyBoot] }, want)
}

// A boot adds the start-up taints again, until the GPUs can be used: two writes of the Node, and two of its condition.
func TestTaintsComeBackAfterBoot(t *testing.T) {
	for _, onFailure := range []v1.OnFailure{v1.OnFailureReport, v1.OnFailureTaint} {
		e := newBooted(t, "one", onFailure)
		e.Expect(e.node()).To(bootOf(Equal("one")))
		before := e.writes
		e.settle()
		e.Expect(e.writes).To(Equal(before), "at rest")

		e.boot("two")
		e.Expect(e.reconcileAfter(time.Second)).NotTo(BeZero())
		e.Expect(e.node().Spec.Taints).To(ConsistOf(team, notReady), "before the loss is reported")
		e.settle()
		// The operator restarts meanwhile.
		e.fleet.Delete("a")
		e.settle()
		e.Expect(e.node().Spec.Taints).To(ConsistOf(team, notReady))
		e.Expect(e.node()).To(bootOf(Equal("one")))

		e.advertise()
		e.settle()
		e.Expect(e.node().Spec.Taints).To(ConsistOf(team))
		e.Expect(e.node()).To(bootOf(Equal("two")))
		e.Expect(e.node().Annotations).NotTo(HaveKey(labels.StartupTaints))
		e.Expect(e.reported()).To(Equal("True GPUReady"))
		t.Logf("a boot makes %d writes of the Node", e.writes-before)
		e.Expect(e.writes - before).To(BeNumerically("<=", 4))

		before = e.writes
		e.setPod("operator-validator", starts)
		e.settle()
		e.Expect(e.node().Spec.Taints).To(ConsistOf(team), "the validator restarts, not the node")
		e.Expect(e.writes-before).To(Equal(1), "the condition")
	}
}

// What is not known to be a boot is none.
func TestNoBoot(t *testing.T) {
	t.Run("the kubelet reports no boot ID", func(t *testing.T) {
		e := newBooted(t, "one", v1.OnFailureReport)
		e.boot("")
		e.settle()
		e.Expect(e.node()).To(And(bootOf(Equal("one")), HaveField("Spec.Taints", ConsistOf(team))))
		e.advertise()
		e.settle()
		e.Expect(e.node()).To(bootOf(Equal("one")))
		before := e.writes
		e.settle()
		e.Expect(e.writes).To(Equal(before))
	})
	t.Run("the kubelet has never reported one", func(t *testing.T) {
		e := newBooted(t, "", v1.OnFailureReport)
		e.boot("")
		e.settle()
		e.Expect(e.node()).To(And(bootOf(BeEmpty()), HaveField("Spec.Taints", ConsistOf(team))))
	})
	t.Run("the node joined before the operator recorded boots", func(t *testing.T) {
		e := newBooted(t, "one", v1.OnFailureReport)
		node := e.node()
		delete(node.Annotations, labels.ReadyBoot)
		e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
		e.fleet.Delete("a")
		e.boot("two")
		e.settle()
		e.Expect(e.node()).To(And(bootOf(BeEmpty()), HaveField("Spec.Taints", ConsistOf(team))))
		e.advertise()
		e.settle()
		e.Expect(e.node()).To(bootOf(Equal("two")), "from now on it is recorded")
	})
	t.Run("no taint is to come back", func(t *testing.T) {
		e := newBooted(t, "one", v1.OnFailureReport)
		e.spec.NodeStartup.Taints[0].Effect = corev1.TaintEffectNoExecute
		e.publish()
		e.settle()
		e.Expect(e.node()).To(bootOf(BeEmpty()))
		before := e.writes
		e.boot("two")
		e.advertise()
		e.settle()
		e.Expect(e.writes).To(Equal(before))
	})
	t.Run("the node is excluded", func(t *testing.T) {
		e := newBooted(t, "one", v1.OnFailureReport)
		e.boot("two")
		e.settle()
		node := e.node()
		node.Labels[labels.DeployOperands] = labels.False
		e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
		e.settle()
		e.Expect(e.node()).To(And(bootOf(BeEmpty()), HaveField("Spec.Taints", ConsistOf(team))))
	})
}

// A policy that is deleted takes the record with it.
func TestReleaseForgetsBoot(t *testing.T) {
	e := newBooted(t, "one", v1.OnFailureReport)
	e.boot("two")
	e.settle()
	s, err := e.reconciler.newScope(t.Context(), "a")
	e.Expect(err).NotTo(HaveOccurred())
	s.entry.Latest = assess.Assessment{NodeVerdict: readiness.NodeVerdict{}}
	e.Expect(s.release(t.Context(), "")).To(Succeed())
	e.Expect(e.node()).To(And(bootOf(BeEmpty()), HaveField("Spec.Taints", ConsistOf(team))))
}
