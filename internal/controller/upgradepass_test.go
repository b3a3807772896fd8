package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// upgrader returns the controller of driver upgrades of the operator.
func (o *operator) upgrader() *upgrade.Reconciler {
	catalogue, err := operands.Catalogue()
	must(err)
	return upgrade.New(upgrade.Options{
		Client: o, Live: live{o}, Catalogue: catalogue, Namespace: namespace, Fleet: o.fleet, Clock: o.clock,
		Events: events.NewRecorder(o, o.clock, func(string) {}), Timing: upgrade.DefaultTiming(),
	})
}

// objectsRead returns how many objects a run reads.
func (o *operator) objectsRead(run func()) int {
	count := 0
	o.onRead = func(read any) {
		switch of := read.(type) {
		case *corev1.NodeList:
			count += len(of.Items)
		case *corev1.PodList:
			count += len(of.Items)
		default:
			count++
		}
	}
	defer func() { o.onRead = nil }()
	run()
	return count
}

// holdForJob makes the node one whose upgrade has waited for a job for an hour.
func (o *operator) holdForJob(name string) {
	o.changePolicy(func(spec *v1.ClusterPolicySpec) {
		spec.Driver = &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
			WaitForCompletion: &v1.WaitForCompletionSpec{PodSelector: "job=train"},
		}}
	})
	o.reconcileAll()
	o.reconcileNodes(o.fleet.Names())
	began := o.clock.Now().Add(-time.Hour).Format(time.RFC3339)
	o.put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "train", UID: "train", Labels: map[string]string{"job": "train"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "train", UID: "job", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		}},
	})
	o.changeNode(name, func(n *corev1.Node) {
		n.Labels[labels.UpgradeState] = "wait-for-jobs-required"
		n.Spec.Unschedulable = true
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, labels.UpgradeRecord, fmt.Sprintf(
			`{"uid":%q,"round":1,"state":"wait-for-jobs-required","since":%q,"started":%q,"target":"old","driver":"older",`+
				`"driverPod":"before","cordoned":true}`, n.UID, began, began))
	})
}

// passCost is what a pass reads and allocates.
type passCost struct {
	objects int
	bytes   uint64
}

// upgradePassCost returns what a pass costs that reports the node alone, which is held, among so many.
func (o *operator) upgradePassCost(g *WithT, held string, nodes int) passCost {
	upgrader := o.upgrader()
	pass := func() {
		_, err := upgrader.Reconcile(context.Background(), reconcile.Request{})
		must(err)
	}
	pass()
	pass()
	g.Expect(*o.fleet.View().Upgrades).To(And(
		HaveField("Nodes", And(HaveLen(1), HaveKey(held))), HaveField("Done", BeNumerically(">=", nodes-1)),
	))
	return passCost{o.objectsRead(pass), allocated(pass)}
}

// One node that waits for hours makes no pass read, plan or copy the others: what a pass costs depends on the nodes in
// an upgrade, not on how many there are.
func TestUpgradePassWithAHeldNode(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the memory of a large cluster; make test-envtest and make test-controller run it")
	}
	g := NewWithT(t)
	const few, many = 20, 1000
	byLabel, forJob := map[int]passCost{}, map[int]passCost{}
	for _, count := range []int{few, many} {
		o := newOperator()
		names := o.addNodes(0, count)
		o.makeReady(names)
		held, other := names[1], names[2]
		setState := func(state string) {
			o.changeNode(held, func(n *corev1.Node) { n.Labels[labels.UpgradeState] = state })
		}
		setState("node-maintenance-required")
		byLabel[count] = o.upgradePassCost(g, held, count)
		o.changeNode(other, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		g.Expect(o.upgradePassCost(g, held, count).objects).To(Equal(byLabel[count].objects), "another node is cordoned")
		setState("upgrade-done")
		o.holdForJob(held)
		forJob[count] = o.upgradePassCost(g, held, count)
	}
	for what, cost := range map[string]map[int]passCost{"a label that nothing continues": byLabel, "a job": forJob} {
		t.Logf("held by %s: %d nodes %+v, %d nodes %+v", what, few, cost[few], many, cost[many])
		g.Expect(cost[many].objects).To(Equal(cost[few].objects), "objects read")
		g.Expect(cost[many].bytes).To(BeNumerically("<", cost[few].bytes+16<<10), "bytes allocated")
	}
}
