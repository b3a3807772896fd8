package observe_test

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// planned is a node in the driver pool a, whose driver the operator installs, beside a driver pool b.
func planned() *observe.UpgradeFacts {
	onNode := func(on operand.Name) []operand.Requirement {
		return []operand.Requirement{{On: on, Scope: operand.Node}}
	}
	decide := func(operand.Input) operand.Decision { return operand.Accept() }
	catalogue := operand.Catalogue{
		{Name: "discovery", Decide: decide},
		{
			Name: "mig-manager", Decide: decide, Workloads: []nodeinfo.Workload{nodeinfo.WorkloadContainer},
			Layout: func(in operand.Input) string { return *in.Spec.MIGManager.Config.Default },
		},
		{Name: "driver", Decide: decide, Stage: v1.StageDriver, UpdatesOnDelete: true},
		{Name: "toolkit", Decide: decide, Stage: v1.StageToolkit, Requires: onNode("driver")},
		{Name: "validator", Decide: decide, Stage: v1.StageValidated, Requires: onNode("toolkit")},
	}
	spec := effective.Of(v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{
		Config: &v1.MIGManagerConfigSpec{Default: new("")},
	}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Labels: map[string]string{labels.Pool: "a"}}}
	return &observe.UpgradeFacts{
		Node: node, Decisions: plan.Decide(catalogue, operand.Input{Spec: spec}), GPUReady: true,
		Planned: &plan.NodePlan{
			Pool: nodeinfo.Pool{Name: "a"}, Spec: spec, Essential: []plan.OperandOnNode{
				{Stage: v1.StageDriver, Operand: "driver"}, {Stage: v1.StageToolkit, Operand: "toolkit"},
				{Stage: v1.StageValidated, Operand: "validator"},
			},
		},
		DaemonSets: map[string]*appsv1.DaemonSet{
			"driver": driverOf("a"), "driver-b": driverOf("b"),
			"other": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.Operand: "dcgm"}}},
		},
		Pods: observe.NodePods{Operands: assess.Pods{
			"discovery": podNamed("discovery"), "driver": podNamed("driver"), "toolkit": podNamed("toolkit"),
			"validator": podNamed("validator"), "of a later release": podNamed("later"),
		}},
	}
}

func podNamed(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// driverOf is the DaemonSet of a driver pool; of all nodes if the pool is empty. The digest is the name of the pool.
func driverOf(pool string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{labels.Operand: "driver"}, Annotations: map[string]string{labels.TemplateDigest: pool},
	}}
	if pool != "" {
		ds.Spec.Template.Labels = map[string]string{labels.Pool: pool}
	}
	return ds
}

// A node gets the driver of its driver pool. By its facts it may have to move to another one.
func TestDriverOfANode(t *testing.T) {
	expect := func(expectation plan.Expectation) func(*observe.UpgradeFacts) {
		return func(of *observe.UpgradeFacts) { of.Planned.Essential[0].Expectation = expectation }
	}
	inPool := func(pool string) func(*observe.UpgradeFacts) {
		return func(of *observe.UpgradeFacts) { of.Planned.Pool.Name = pool }
	}
	withoutPools := func(selector map[string]string) func(*observe.UpgradeFacts) {
		return func(of *observe.UpgradeFacts) {
			ds := driverOf("")
			ds.Annotations[labels.TemplateDigest], ds.Spec.Template.Spec.NodeSelector = "earlier", selector
			of.DaemonSets = map[string]*appsv1.DaemonSet{"driver": ds}
		}
	}
	record := upgrade.Record{UID: "n", Round: 1, State: upgrade.StatePodRestart}
	for name, test := range map[string]struct {
		change   func(*observe.UpgradeFacts)
		installs bool
		moveTo   string
		// target is also the digest of the DaemonSet; empty for none.
		target string
	}{
		"of its pool":                         {change: inPool("a"), installs: true, target: "a"},
		"of another pool by its facts":        {change: inPool("b"), installs: true, moveTo: "b", target: "b"},
		"of a pool that has none yet":         {change: inPool("c"), installs: true, moveTo: "c", target: "a"},
		"of its pool, while a fact is absent": {change: inPool(""), installs: true, target: "a"},
		"of the pool of its anchor": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels = map[string]string{labels.DriverAnchor: "a"}
			inPool("b")(of)
		}, installs: true, moveTo: "b", target: "b"},
		"of its pool, not of its anchor": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.DriverAnchor] = "b"
		}, installs: true, target: "a"},
		"of the pool that it joins": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels = nil
			inPool("b")(of)
		}, installs: true, target: "b"},
		"paused":                {change: expect(plan.PausedByLabel), installs: true, target: "a"},
		"of the host":           {change: expect(plan.HostProvides), target: "a"},
		"kept off by a label":   {change: expect(plan.OptedOut), target: "a"},
		"refused, and is there": {change: expect(plan.Refused), installs: true, target: "a"},
		"refused, and is there, in another pool": {change: func(of *observe.UpgradeFacts) {
			inPool("b")(of)
			expect(plan.Refused)(of)
		}, installs: true, target: "a"},
		"refused, and is not there": {change: func(of *observe.UpgradeFacts) {
			delete(of.Pods.Operands, "driver")
			expect(plan.Refused)(of)
		}, target: "a"},
		"refused while it is replaced": {change: func(of *observe.UpgradeFacts) {
			delete(of.Pods.Operands, "driver")
			of.Node.Annotations = map[string]string{labels.UpgradeRecord: record.Encode()}
			expect(plan.Refused)(of)
		}, installs: true, target: "a"},
		"of a node without operands": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.DeployOperands] = "false"
		}},
		"not part of the plan": {change: func(of *observe.UpgradeFacts) { of.Planned.Essential = nil }},
		"whose DaemonSet is being deleted": {change: func(of *observe.UpgradeFacts) {
			of.DaemonSets["driver"].DeletionTimestamp = &metav1.Time{}
		}, installs: true},
		"of a release without pools":            {change: withoutPools(nil), installs: true, target: "earlier"},
		"of such a release on the node's label": {withoutPools(map[string]string{labels.Pool: "a"}), true, "", "earlier"},
		"of such a release for other nodes":     {change: withoutPools(map[string]string{"x": "y"}), installs: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := planned()
			test.change(of)
			node, ds := observe.UpgradeNode(of)
			g.Expect(node.Installs).To(Equal(test.installs), "installs")
			g.Expect(node.MoveTo).To(Equal(test.moveTo))
			g.Expect(node.Target).To(Equal(test.target))
			if test.target == "" {
				g.Expect(ds).To(BeNil())
				return
			}
			g.Expect(ds.Annotations).To(HaveKeyWithValue(labels.TemplateDigest, test.target))
		})
	}
}

// The pods that need the driver matter where the operator or another client may replace it.
func TestPodsOfANode(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*observe.UpgradeFacts)
		dependants []string
	}{
		"without an upgrade": {change: func(*observe.UpgradeFacts) {}},
		"after an upgrade": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.UpgradeState] = string(upgrade.StateDone)
		}},
		"with a record": {change: func(of *observe.UpgradeFacts) {
			done := upgrade.Record{UID: "n", Round: 1, State: upgrade.StateDone}
			of.Node.Annotations = map[string]string{labels.UpgradeRecord: done.Encode()}
		}, dependants: []string{"toolkit", "validator"}},
		"during an upgrade of another operator": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.UpgradeState] = string(upgrade.StateUncordon)
		}, dependants: []string{"toolkit", "validator"}},
		"after a failed one": {change: func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.UpgradeState] = string(upgrade.StateFailed)
		}, dependants: []string{"toolkit", "validator"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := planned()
			test.change(of)
			node, _ := observe.UpgradeNode(of)
			g.Expect(node.Driver).To(HaveField("Name", "driver"))
			g.Expect(node.Validator).To(HaveField("Name", "validator"))
			var names []string
			for _, pod := range node.Dependants {
				names = append(names, pod.Name)
			}
			g.Expect(names).To(Equal(test.dependants))
			g.Expect(node.GPUReady).To(BeTrue())
		})
	}
}

// A validator is expected on the node, now or once its label does not pause it any more.
func TestExpectedValidator(t *testing.T) {
	for name, test := range map[string]struct {
		expectation plan.Expectation
		wanted      bool
		paused      string
	}{
		"now":     {plan.Expected, true, ""},
		"later":   {plan.PausedByLabel, true, "paused by its label"},
		"never":   {plan.OptedOut, false, ""},
		"refused": {plan.Refused, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			of := planned()
			of.Planned.Essential[2].Expectation, of.Planned.Essential[2].Message = test.expectation, "paused by its label"
			of.Planned.Essential[1].Expectation = plan.PausedByLabel
			node, _ := observe.UpgradeNode(of)
			g.Expect(node.ValidatorWanted).To(Equal(test.wanted))
			g.Expect(node.ValidatorPaused).To(Equal(test.paused))
		})
	}
}

// What the label of the MIG manager says, and the plan wants.
func TestMIGLayoutOfANode(t *testing.T) {
	drains := func(of *observe.UpgradeFacts) {
		of.Planned.Spec.MIGManager.Config = &v1.MIGManagerConfigSpec{OnBusy: v1.MIGBusyDrain}
	}
	drainsFor := func(layout string) func(*observe.UpgradeFacts) {
		return func(of *observe.UpgradeFacts) {
			drains(of)
			of.Decisions.Input.Spec.MIGManager.Config.Default = &layout
		}
	}
	state := func(state string) func(*observe.UpgradeFacts) {
		return func(of *observe.UpgradeFacts) { of.Node.Labels[labels.MIGConfigState] = state }
	}
	for name, test := range map[string]struct {
		change func(*observe.UpgradeFacts)
		want   upgrade.MIG
	}{
		"no MIG manager": {func(of *observe.UpgradeFacts) { of.Planned.MIGWanted = "x" }, upgrade.MIG{}},
		"another layout is wanted": {func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.MIGConfig] = "all-balanced"
			of.Planned.Partitioner, of.Planned.MIGWanted = "mig-manager", "all-1g.10gb"
		}, upgrade.MIG{Partitioned: true, Requested: "all-balanced", Wanted: "all-1g.10gb"}},
		"a MIG manager that is off": {func(of *observe.UpgradeFacts) {
			of.Planned.PartitionerOff, of.Planned.MIGWanted = true, "x"
		}, upgrade.MIG{Off: true}},
		"an outcome":                         {state("success"), upgrade.MIG{Ended: true}},
		"a failure":                          {state("failed"), upgrade.MIG{Ended: true}},
		"a layout that is being applied":     {state("pending"), upgrade.MIG{Changing: true}},
		"a reboot for it":                    {state("rebooting"), upgrade.MIG{Changing: true}},
		"pods are evicted for it":            {drains, upgrade.MIG{Evict: true}},
		"pods are evicted for the first one": {drainsFor("all-1g.10gb"), upgrade.MIG{Evict: true}},
		"the first one disturbs no pod":      {drainsFor("all-disabled"), upgrade.MIG{}},
		"the next one disturbs pods": {func(of *observe.UpgradeFacts) {
			of.Node.Labels[labels.MIGConfig] = "all-1g.10gb"
			drainsFor("all-disabled")(of)
		}, upgrade.MIG{Requested: "all-1g.10gb", Evict: true}},
		"pods are waited for": {func(of *observe.UpgradeFacts) {
			of.Planned.Spec.MIGManager.Config = &v1.MIGManagerConfigSpec{OnBusy: v1.MIGBusyHold}
		}, upgrade.MIG{}},
	} {
		t.Run(name, func(t *testing.T) {
			of := planned()
			of.Planned.Spec.MIGManager = &v1.MIGManagerSpec{}
			test.change(of)
			node, _ := observe.UpgradeNode(of)
			NewWithT(t).Expect(node.MIG).To(Equal(test.want))
		})
	}
}

// A node has the upgradePolicy of its NVIDIADriver object, that of its node pool if it has one, or the common one.
func TestGroupOfANode(t *testing.T) {
	spec := effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{
		{Name: "plain", Driver: &v1.NodePoolDriverSpec{}}, {Name: "none"},
		{Name: "own", Driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{Paused: new(true)}}},
	}})
	for name, test := range map[string]struct {
		node plan.NodePlan
		want string
	}{
		"no node pool":                          {plan.NodePlan{}, ""},
		"a node pool without a driver":          {plan.NodePlan{NodePool: "none"}, ""},
		"a node pool without an own policy":     {plan.NodePlan{NodePool: "plain"}, ""},
		"a node pool with its own":              {plan.NodePlan{NodePool: "own"}, "own"},
		"an NVIDIADriver object":                {plan.NodePlan{DriverOwner: "own"}, "NVIDIADriver own"},
		"an NVIDIADriver object in such a pool": {plan.NodePlan{DriverOwner: "a", NodePool: "own"}, "NVIDIADriver a"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(observe.UpgradeGroup(spec, &test.node)).To(Equal(test.want))
		})
	}
}
