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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// switched are the operands that no other one depends on, and how the spec enables and disables each.
var switched = map[string]func(spec *v1.ClusterPolicySpec, on bool){
	"gpu-feature-discovery": func(s *v1.ClusterPolicySpec, on bool) { s.GFD = &v1.GFDSpec{Enabled: &on} },
	"dcgm-exporter": func(s *v1.ClusterPolicySpec, on bool) {
		s.DCGMExporter = &v1.DCGMExporterSpec{Enabled: &on}
	},
	"mig-manager": func(s *v1.ClusterPolicySpec, on bool) { s.MIGManager = &v1.MIGManagerSpec{Enabled: &on} },
	"node-status-exporter": func(s *v1.ClusterPolicySpec, on bool) {
		s.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: &on}
	},
	"health-agent": func(s *v1.ClusterPolicySpec, on bool) {
		s.Health = &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: &on}}
	},
}

// TestOperandsAreRemovedAndReinstalled: all objects of a disabled operand are removed, and re-created when it is
// enabled; those of others are not written meanwhile. A node with another operating system adds a driver DaemonSet
// and changes no other object.
func TestOperandsAreRemovedAndReinstalled(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	_, err := e.sim.AddNode(t.Context(),
		simulator.NodeSpec{Name: "mig", Labels: map[string]string{labels.MIGCapable: "true"}})
	e.Expect(err).NotTo(HaveOccurred())
	e.run()
	object := e.samplePolicy()
	for _, turn := range switched {
		turn(&object.Spec, true)
	}
	e.create(object)
	e.awaitReady(1)
	whole := e.written()
	for name, turn := range switched {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			e.Expect(len(except(whole, name))).To(BeNumerically("<", len(whole)), "it has objects")
			e.respec(func(spec *v1.ClusterPolicySpec) { turn(spec, false) })
			e.Eventually(e.written).Should(Equal(except(whole, name)), "its objects are removed, and nothing else has changed")
			e.respec(func(spec *v1.ClusterPolicySpec) { turn(spec, true) })
			e.Eventually(e.written).Should(HaveLen(len(whole)))
			e.awaitReady(1)
			e.Expect(except(e.written(), name)).To(Equal(except(whole, name)))
			whole = e.written()
		})
	}
	t.Run("another operating system", func(t *testing.T) {
		e := e.in(t)
		_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04"})
		e.Expect(err).NotTo(HaveOccurred())
		e.awaitReady(2)
		after := e.written()
		const added = "DaemonSet nvidia-driver-daemonset-ubuntu22.04-amd64"
		e.Expect(after).To(HaveKey(added))
		delete(after, added)
		e.Expect(after).To(Equal(whole))
	})
}

// TestBrokenImageBlocksNoOther: an auxiliary operand fails on a node. The node and the other operands stay ready, and
// the status reports what fails where, in which container and why.
func TestBrokenImageBlocksNoOther(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.sim.Break("dcgm-exporter", "gpu-00001", simulator.ImagePull)
	e.run()
	e.create(e.samplePolicy())
	e.Eventually(func() []v1.OperandStatus {
		return e.policy().Status.Operands
	}).WithTimeout(time.Minute).Should(ContainElement(And(
		HaveField("Name", "dcgm-exporter"), HaveField("State", v1.OperandDegraded), HaveField("Ready", int32(1)),
		HaveField("Message", HavePrefix("fails on 1 of 2 nodes: gpu-00001 (container nvidia-dcgm-exporter: "+
			"ImagePullBackOff: nvcr.io/nvidia/k8s/dcgm-exporter:")))))
	e.Eventually(func(g Gomega) {
		for _, operand := range e.policy().Status.Operands {
			if operand.Name != "dcgm-exporter" {
				g.Expect(operand.State).To(BeElementOf(v1.OperandReady, v1.OperandDisabled, v1.OperandNotNeeded), operand.Name)
			}
		}
		g.Expect(e.policy().Status.NodeSummary.ReadyOfTotal).To(Equal("2/2"), "the GPUs can be used")
	}).WithTimeout(time.Minute).Should(Succeed())
	e.Expect(e.policy().Status.Conditions).To(ContainElement(And(HaveField("Type", v1.ConditionDegraded),
		HaveField("Message", ContainSubstring("dcgm-exporter")))))
	e.sim.Heal("dcgm-exporter", "gpu-00001")
	e.awaitReady(2)
}

// writtenObject identifies a version of an object without its status.
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
func (e *env) respec(change func(*v1.ClusterPolicySpec)) {
	e.t.Helper()
	object := e.policy()
	e.Expect(e.edit(object, func() { change(&object.Spec) })).To(Succeed())
}

// written returns the objects of the stack in the operator's namespace, by kind and name.
func (e *env) written() map[string]writtenObject {
	e.t.Helper()
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
		e.Expect(e.client.List(e.t.Context(), list, ours...)).To(Succeed())
	}
	for i := range daemonSets.Items {
		note("DaemonSet", &daemonSets.Items[i])
	}
	for i := range maps.Items {
		note("ConfigMap", &maps.Items[i])
	}
	for i := range services.Items {
		// Each edit of the spec is recorded there.
		if _, records := services.Items[i].Annotations[labels.AppliedSpec]; !records {
			note("Service", &services.Items[i])
		}
	}
	return found
}
