package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// switched are the operands that no other one depends on, and how the spec turns each on and off.
var switched = map[string]func(spec *v1.ClusterPolicySpec, on bool){
	"gpu-feature-discovery": func(s *v1.ClusterPolicySpec, on bool) { s.GFD = &v1.GFDSpec{Enabled: &on} },
	"dcgm-exporter":         func(s *v1.ClusterPolicySpec, on bool) { s.DCGMExporter = &v1.DCGMExporterSpec{Enabled: &on} },
	"mig-manager":           func(s *v1.ClusterPolicySpec, on bool) { s.MIGManager = &v1.MIGManagerSpec{Enabled: &on} },
	"node-status-exporter": func(s *v1.ClusterPolicySpec, on bool) {
		s.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: &on}
	},
}

// TestEachOperandGoesAndComes: an operand that is turned off leaves nothing behind and comes back with
// all its objects; those of the others are not written meanwhile. A node with another operating system
// brings a driver DaemonSet of its own and changes no other object.
func TestEachOperandGoesAndComes(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "mig", Labels: map[string]string{labels.MIGCapable: "true"}})
	b.Expect(err).NotTo(HaveOccurred())
	b.run()
	object := b.samplePolicy()
	for _, turn := range switched {
		turn(&object.Spec, true)
	}
	b.create(object)
	b.awaitReady(1)
	whole := b.written()
	for name, turn := range switched {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			b.Expect(len(except(whole, name))).To(BeNumerically("<", len(whole)), "it has objects")
			b.respec(func(spec *v1.ClusterPolicySpec) { turn(spec, false) })
			b.Eventually(b.written).Should(Equal(except(whole, name)), "all of it is gone, and nothing else has changed")
			b.respec(func(spec *v1.ClusterPolicySpec) { turn(spec, true) })
			b.Eventually(b.written).Should(HaveLen(len(whole)))
			b.awaitReady(1)
			b.Expect(except(b.written(), name)).To(Equal(except(whole, name)))
			whole = b.written()
		})
	}
	t.Run("another operating system", func(t *testing.T) {
		b := b.in(t)
		_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04"})
		b.Expect(err).NotTo(HaveOccurred())
		b.awaitReady(2)
		after := b.written()
		const added = "DaemonSet nvidia-driver-daemonset-ubuntu22.04-amd64"
		b.Expect(after).To(HaveKey(added))
		delete(after, added)
		b.Expect(after).To(Equal(whole))
	})
}

// TestABrokenImageHoldsUpNobody: an operand that GPUs do not depend on fails on a node. The node stays
// ready, the other operands do, and the status says what fails where, in which container and why.
func TestABrokenImageHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.sim.Break("dcgm-exporter", "gpu-00001", simulator.ImagePull)
	b.run()
	b.create(b.samplePolicy())
	b.Eventually(func() []v1.OperandStatus { return b.policy().Status.Operands }).WithTimeout(time.Minute).Should(ContainElement(And(
		HaveField("Name", "dcgm-exporter"), HaveField("State", v1.OperandDegraded), HaveField("Ready", int32(1)),
		HaveField("Message", HavePrefix("fails on 1 of 2 nodes: gpu-00001 (container nvidia-dcgm-exporter: ImagePullBackOff: nvcr.io/nvidia/k8s/dcgm-exporter:")))))
	b.Eventually(func(g Gomega) {
		for _, operand := range b.policy().Status.Operands {
			if operand.Name != "dcgm-exporter" {
				g.Expect(operand.State).To(BeElementOf(v1.OperandReady, v1.OperandDisabled, v1.OperandNotNeeded), operand.Name)
			}
		}
		g.Expect(b.policy().Status.NodeSummary.ReadyOfTotal).To(Equal("2/2"), "the GPUs can be used")
	}).WithTimeout(time.Minute).Should(Succeed())
	b.Expect(b.policy().Status.Conditions).To(ContainElement(And(HaveField("Type", v1.ConditionDegraded), HaveField("Message", ContainSubstring("dcgm-exporter")))))
	b.sim.Heal("dcgm-exporter", "gpu-00001")
	b.awaitReady(2)
}

// writtenObject is what tells whether an object was written: its status apart.
type writtenObject struct{ operand, uid, writes string }

func except(all map[string]writtenObject, name string) map[string]writtenObject {
	rest := map[string]writtenObject{}
	for key, object := range all {
		if object.operand != name {
			rest[key] = object
		}
	}
	return rest
}

// respec changes the policy.
func (b *bed) respec(change func(*v1.ClusterPolicySpec)) {
	b.t.Helper()
	object := b.policy()
	b.Expect(b.edit(object, func() { change(&object.Spec) })).To(Succeed())
}

// written are the objects of the stack in the operator's namespace, by kind and name.
func (b *bed) written() map[string]writtenObject {
	b.t.Helper()
	found := map[string]writtenObject{}
	note := func(kind string, object client.Object) {
		writes := ""
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "" && entry.Operation == metav1.ManagedFieldsOperationApply {
				writes += fmt.Sprintf("%s %s;", entry.Manager, entry.Time)
			}
		}
		found[kind+" "+object.GetName()] = writtenObject{object.GetLabels()[labels.Operand], string(object.GetUID()), writes}
	}
	ours := []client.ListOption{client.InNamespace(namespace), client.HasLabels{labels.Operand}}
	daemonSets, maps, services := &appsv1.DaemonSetList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}
	for _, list := range []client.ObjectList{daemonSets, maps, services} {
		b.Expect(b.client.List(b.t.Context(), list, ours...)).To(Succeed())
	}
	for i := range daemonSets.Items {
		note("DaemonSet", &daemonSets.Items[i])
	}
	for i := range maps.Items {
		note("ConfigMap", &maps.Items[i])
	}
	for i := range services.Items {
		if _, records := services.Items[i].Annotations[labels.AppliedSpec]; !records { // Each edit of the spec is recorded there.
			note("Service", &services.Items[i])
		}
	}
	return found
}
