package controller_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// changeNode applies a change to a node, and reconciles it.
func (o *operator) changeNode(name string, change func(*corev1.Node)) {
	node := &corev1.Node{}
	must(o.Get(context.Background(), client.ObjectKey{Name: name}, node))
	after := node.DeepCopy()
	change(after)
	o.put(after)
	o.reconcileNode(name)
}

// changePolicy applies a change to the spec of the policy.
func (o *operator) changePolicy(change func(*v1.ClusterPolicySpec)) {
	policy := &v1.ClusterPolicy{}
	must(o.Get(context.Background(), client.ObjectKey{Name: "cluster-policy"}, policy))
	policy = policy.DeepCopy()
	policy.Generation++
	change(&policy.Spec)
	o.put(policy)
}

// The node controller keeps which nodes matter to driver upgrades, so that the upgrade controller need not look.
func TestUpgradeStateOfNodes(t *testing.T) {
	g := NewWithT(t)
	o := newOperator()
	names := o.addNodes(0, 4)
	must(o.node.Hydrate(context.Background()))
	atRest := func() bool {
		_, atRest := o.fleet.UpgradesAtRest()
		return atRest
	}
	g.Expect(atRest()).To(BeFalse(), "no node has been looked at")
	o.reconcileAll()
	o.reconcileNodes(names)
	g.Expect(atRest()).To(BeTrue(), "no driver is installed yet")
	g.Expect(o.fleet.Get(names[0]).Resting).To(HaveValue(HaveField("UpToDate", false)))
	o.makeReady(names)
	done, _ := o.fleet.UpgradesAtRest()
	g.Expect(done).To(Equal(4))

	node := names[1]
	for what, change := range map[string][2]func(*corev1.Node){
		"a request": {
			func(n *corev1.Node) { n.Annotations = map[string]string{labels.UpgradeRequested: labels.True} },
			func(n *corev1.Node) { n.Annotations = nil },
		},
		"a label of an upgrade by others": {
			func(n *corev1.Node) { n.Labels[labels.UpgradeState] = "drain-required" },
			func(n *corev1.Node) { delete(n.Labels, labels.UpgradeState) },
		},
	} {
		o.changeNode(node, change[0])
		g.Expect(o.fleet.Get(node).Resting).To(BeNil(), what)
		g.Expect(atRest()).To(BeFalse(), what)
		o.changeNode(node, change[1])
		g.Expect(o.fleet.Get(node).Resting).To(HaveValue(HaveField("UpToDate", true)), "the end of "+what)
		g.Expect(atRest()).To(BeTrue(), "the end of "+what)
	}

	o.changePolicy(func(spec *v1.ClusterPolicySpec) {
		spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "999.1"}}
	})
	o.reconcileAll()
	o.reconcileAll()
	o.reconcileNode(node)
	g.Expect(o.fleet.Get(node).Resting).To(BeNil(), "another driver")
	o.removeNodes(names)
	o.reconcileNodes(names)
	g.Expect(atRest()).To(BeTrue(), "the nodes are deleted")
}
