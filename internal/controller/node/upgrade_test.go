package node

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// A node is marked for upgrades where the operator installs the driver, and as up to date once its pods are. Both end
// with the driver, but not while it is only refused.
func TestMarksOfUpgrades(t *testing.T) {
	const done, driver = string(upgrade.StateDone), labels.DeployPrefix + "driver"
	enabled := map[string]string{labels.UpgradeEnabled: labels.True}
	current := plan.ReadyPods{CurrentDriver: true, Injector: true}
	automatic := &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(true)}}
	manual := &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(false)}}
	for name, test := range map[string]struct {
		driver              *v1.DriverSpec
		labels, annotations map[string]string
		ready               plan.ReadyPods
		// marked are the labels and annotations that are added, and unmarked those that are removed.
		marked, unmarked map[string]string
	}{
		"a new node":                {marked: enabled},
		"a node with another value": {annotations: map[string]string{labels.UpgradeEnabled: "x"}, marked: enabled},
		"a marked node":             {annotations: enabled},
		"a driver that its label pauses": {
			labels: map[string]string{driver: labels.DeployPausedPrefix + "driver-upgrade"}, marked: enabled,
		},
		"a current driver":     {annotations: enabled, ready: current, marked: map[string]string{labels.UpgradeState: done}},
		"without the injector": {annotations: enabled, ready: plan.ReadyPods{CurrentDriver: true}},
		"without the driver":   {annotations: enabled, ready: plan.ReadyPods{Driver: true, Injector: true}},
		"a current driver of a node with a state": {
			labels: map[string]string{labels.UpgradeState: "x"}, annotations: enabled, ready: current,
		},
		"a current driver of a node with a record": {
			annotations: map[string]string{labels.UpgradeEnabled: labels.True, labels.UpgradeRecord: "x"}, ready: current,
		},
		"a current driver, without upgrades": {driver: manual, annotations: enabled, ready: current},
		"a driver that was up to date, without upgrades": {
			driver: manual, labels: map[string]string{labels.UpgradeState: done}, annotations: enabled,
			unmarked: map[string]string{labels.UpgradeState: done},
		},
		"another state, without upgrades": {
			driver: manual, labels: map[string]string{labels.UpgradeState: "x"}, annotations: enabled,
		},
		"no driver": {
			driver: &v1.DriverSpec{Enabled: new(false)}, labels: map[string]string{labels.UpgradeState: done},
			annotations: enabled, ready: current,
			unmarked: map[string]string{labels.UpgradeState: done, labels.UpgradeEnabled: labels.True},
		},
		"the driver of the host": {
			labels: map[string]string{driver: "pre-installed"}, annotations: enabled, ready: current, unmarked: enabled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.spec.Driver = cmp.Or(test.driver, automatic)
			e.updateNode(func(node *corev1.Node) {
				for key, value := range test.labels {
					node.Labels[key] = value
				}
				node.Annotations = test.annotations
			})
			e.publish()
			marks, notes := map[string]*string{}, map[string]*string{}
			e.scope(func(*scope) {}).markUpgrades(test.ready, marks, notes)
			wantMarks, wantNotes := map[string]*string{}, map[string]*string{}
			for key, want := range map[string]map[string]*string{
				labels.UpgradeState: wantMarks, labels.UpgradeEnabled: wantNotes,
			} {
				if value, marked := test.marked[key]; marked {
					want[key] = &value
				}
				if _, unmarked := test.unmarked[key]; unmarked {
					want[key] = nil
				}
			}
			e.Expect(marks).To(Equal(wantMarks))
			e.Expect(notes).To(Equal(wantNotes))
		})
	}
	for expectation, keeps := range map[plan.Expectation]bool{plan.Refused: true, plan.Expected: false} {
		g := NewWithT(t)
		g.Expect(keepsDriver(true, plan.OperandOnNode{Expectation: expectation})).To(Equal(keeps))
		g.Expect(keepsDriver(false, plan.OperandOnNode{Expectation: expectation})).To(BeFalse())
	}
}

// The injector is waited for only where it is expected.
func TestNodesWithoutAnInjector(t *testing.T) {
	for name, test := range map[string]struct {
		ready     plan.ReadyPods
		essential []plan.OperandOnNode
		want      bool
	}{
		"expected":           {essential: []plan.OperandOnNode{{Operand: "container-toolkit"}}},
		"expected and ready": {plan.ReadyPods{Injector: true}, []plan.OperandOnNode{{Operand: "container-toolkit"}}, true},
		"kept off": {
			essential: []plan.OperandOnNode{{Operand: "container-toolkit", Expectation: plan.OptedOut}}, want: true,
		},
		"another operand": {essential: []plan.OperandOnNode{{Operand: "driver"}}, want: true},
		"an unknown one":  {essential: []plan.OperandOnNode{{Operand: "x"}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.scope(func(s *scope) { s.plans(plan.NodePlan{Essential: test.essential}) })
			e.Expect(s.hasInjector(test.ready)).To(Equal(test.want))
		})
	}
}

// A record of an upgrade or of a drain counts on the Node that it was written for.
func TestRecordsOfUpgrades(t *testing.T) {
	const own, other = `{"uid":"u","state":"upgrade-done"}`, `{"uid":"v","state":"upgrade-done"}`
	for name, test := range map[string]struct {
		record, drain string
		has, drained  bool
	}{
		"none":               {},
		"a record":           {record: own, has: true},
		"a record of others": {record: other},
		"unreadable records": {record: "{", drain: "{"},
		"a drain":            {drain: own, has: true, drained: true},
		"a drain of others":  {drain: other},
		"both":               {record: own, drain: own, has: true, drained: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, node := NewWithT(t), &corev1.Node{}
			node.UID = "u"
			node.Annotations = map[string]string{labels.UpgradeRecord: test.record, labels.MIGDrain: test.drain}
			g.Expect(hasUpgrade(node)).To(Equal(test.has))
			g.Expect(isDrained(node)).To(Equal(test.drained))
		})
	}
}

// What a node means for the plans of others is known unless a plan has to look at it.
func TestRestingNodes(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.settle()
	e.Expect(e.fleet.Get("a").Resting).To(HaveValue(Equal(upgrade.Resting{
		Name: "a", Group: e.fleet.Get("a").Resting.Group, Installs: true,
	})))
	for name, test := range map[string]struct {
		change func(*scope)
		want   bool
	}{
		"as it is":      {func(*scope) {}, true},
		"no basis":      {func(s *scope) { s.basis = nil }, false},
		"no decisions":  {func(s *scope) { s.basis, s.pods.Operands = &fleet.Basis{}, nil }, true},
		"no plan":       {func(s *scope) { s.entry.Planned, s.pods.Operands = nil, nil }, true},
		"pods not read": {func(s *scope) { s.pods.Operands = nil }, false},
		"an upgrade":    {func(s *scope) { s.node.Labels[labels.UpgradeState] = "drain-required" }, false},
		"a drain":       {func(s *scope) { s.node.Annotations[labels.MIGDrain] = "{}" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.scope(func(s *scope) { s.pods.Operands = assess.Pods{operand.Name("driver"): readyPod()} })
			test.change(s)
			NewWithT(t).Expect(s.resting() != nil).To(Equal(test.want))
		})
	}
}
