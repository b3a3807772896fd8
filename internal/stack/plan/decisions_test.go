package plan_test

import (
	"errors"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// teamA is a pool that overrides the driver, the toolkit and the MIG strategy.
var teamA = v1.NodePoolSpec{
	Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"},
	Driver:  &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
	Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v1.18.0"}},
	MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
}

// twoRuntimes returns a node of no pool and one of the pool, with different container runtimes.
func twoRuntimes() []nodeinfo.Facts {
	crio := changed(ubuntu("plain"), func(f *nodeinfo.Facts) { f.Runtime = nodeinfo.RuntimeCRIO })
	return []nodeinfo.Facts{crio, withLabels(ubuntu("own"), "team", "a")}
}

// Both controllers use the same decisions concurrently. The race detector reports any write.
func TestDecisionsAreSafeForConcurrentUse(t *testing.T) {
	g := NewWithT(t)
	nodes := twoRuntimes()
	type results struct {
		node    plan.NodePlan
		labels  map[string]*string
		missing string
		actions []plan.Action
	}
	use := func(d *plan.Decisions) results {
		var r results
		for _, facts := range nodes {
			r.node, r.labels, r.missing = d.ForNode(
				facts,
			), d.NodeLabels(
				facts,
				nil,
				plan.ReadyPods{Injector: true},
			), d.DescribeMissingLabels(
				facts,
			)
		}
		for _, step := range plan.Compute(d, nil, nodes).Steps {
			r.actions = append(r.actions, step.Action)
		}
		return r
	}
	shared, all := plan.Decide(catalogue(t), withPools(teamA)), make([]results, 8)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = use(shared) })
	}
	wg.Wait()
	g.Expect(all).To(HaveEach(Equal(use(plan.Decide(catalogue(t), withPools(teamA))))))
}

// Facts about the cluster are in the plan, also for nodes of pools, and never in the decisions.
func TestPlanInputHasTheCluster(t *testing.T) {
	g := NewWithT(t)
	in := withPools(teamA)
	in.Layouts, in.Optional = []nodeinfo.Layout{
		{Name: "other"},
	}, map[operand.OptionalKind]bool{
		operand.PrometheusRule: true,
	}
	optional := map[operand.OptionalKind]bool{operand.ServiceMonitor: true}
	d := plan.Decide(catalogue(t), in)
	p := plan.Compute(d, optional, twoRuntimes())
	g.Expect(d.Input.Layouts).To(BeEmpty())
	g.Expect(d.Input.Optional).To(BeEmpty())
	for pool, strategy := range map[string]v1.MIGStrategy{"": "", "a": v1.MIGStrategyMixed, "unknown": ""} {
		got := p.InputForNodePool(&d.Catalogue[0], pool)
		var runtimes []string
		for _, layout := range got.Layouts {
			runtimes = append(runtimes, layout.Runtime)
		}
		g.Expect(runtimes).To(ConsistOf(nodeinfo.RuntimeContainerd, nodeinfo.RuntimeCRIO), pool)
		g.Expect(got.Optional).To(Equal(optional), pool)
		g.Expect(got.Spec.MIG.Strategy).To(Equal(strategy), pool)
	}
}

// The spec of a pool and the runtimes of the nodes may conflict, which the decisions cannot detect: what exists of the
// operand stays.
func TestPoolInConflictWithRuntimesIsHeld(t *testing.T) {
	picky := operand.Operand{
		Name: "picky", Workloads: []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Decide: func(operand.Input) operand.Decision { return operand.Accept() },
		Varies: func(pool v1.NodePoolSpec) bool { return pool.Toolkit != nil },
		Instances: func(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
			if in.NodePool != nil && len(in.Layouts) > 1 {
				return nil, errors.New("one path for two runtimes")
			}
			return []operand.Instance{{}}, nil
		},
	}
	tests := map[string]struct {
		nodes     []nodeinfo.Facts
		want      plan.Step
		instances []string
	}{
		"two runtimes": {nodes: twoRuntimes(), want: plan.Step{
			Action:  plan.Hold,
			State:   v1.OperandInvalid,
			Reason:  v1.ReasonInvalidSpec,
			Message: "node pool a: one path for two runtimes",
		}},
		"two runtimes, and no node in the pool": {
			nodes: []nodeinfo.Facts{twoRuntimes()[0], ubuntu("b")}, want: plan.Step{Action: plan.Apply}, instances: []string{""},
		},
		"one runtime": {nodes: twoRuntimes()[1:], want: plan.Step{Action: plan.Apply}, instances: []string{"", "-pool-a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			d := plan.Decide(operand.Catalogue{picky}, withPools(teamA))
			g.Expect(d.NodePools[0].Decision).To(Equal(operand.Accept()))
			got := plan.Compute(d, nil, test.nodes).Steps[0]
			var suffixes []string
			for _, instance := range got.Instances {
				suffixes = append(suffixes, instance.Suffix)
			}
			g.Expect(suffixes).To(Equal(test.instances))
			g.Expect(plan.Step{Action: got.Action, State: got.State, Reason: got.Reason, Message: got.Message}).
				To(Equal(test.want))
		})
	}
}

// While OpenShift's configuration cannot be read, the driver is in the state Error, not Invalid: the spec is right, and
// the read is retried.
func TestAFailedReadMakesNoOperandInvalid(t *testing.T) {
	g := NewWithT(t)
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{}), OpenShiftUnread: "timeout"}
	for _, step := range plan.Compute(plan.Decide(catalogue(t), in), nil, twoRuntimes()).Steps {
		if step.Operand.Name == "driver" {
			g.Expect(step).To(And(HaveField("Action", plan.Hold), HaveField("State", v1.OperandError),
				HaveField("Reason", v1.ReasonReconcileFailed), HaveField("Message", HaveSuffix("are read: timeout"))))
			return
		}
	}
	t.Error("there is no driver")
}
