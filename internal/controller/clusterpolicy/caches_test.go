package clusterpolicy

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// decisionsOf returns the decisions for a spec.
func decisionsOf(spec v1.ClusterPolicySpec) *plan.Decisions {
	return plan.Decide(allOperands(), operand.Input{
		Spec: effective.Of(spec), Namespace: namespace, OperatorImage: "example.com/gpu-operator:v1",
	})
}

// expectSame expects two pointers to be the same one, or not.
func expectSame[T any](g *WithT, got, before *T, want bool, name string) {
	if want {
		g.Expect(got).To(BeIdenticalTo(before), name)
	} else {
		g.Expect(got).NotTo(BeIdenticalTo(before), name)
	}
}

// Decisions are used again for the same spec and the same references, and for no others.
func TestWhenDecisionsAreReused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fleet.Basis, *v1.ClusterPolicySpec, *operand.Input)
		reused bool
	}{
		"nothing":      {func(*fleet.Basis, *v1.ClusterPolicySpec, *operand.Input) {}, true},
		"no decisions": {func(b *fleet.Basis, _ *v1.ClusterPolicySpec, _ *operand.Input) { b.Decisions = nil }, false},
		"the spec": {func(_ *fleet.Basis, spec *v1.ClusterPolicySpec, _ *operand.Input) {
			spec.Paused = new(true)
		}, false},
		"its generation": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.AppliedSpec = "2-a"
		}, false},
		"the content of a reference": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.Contents = map[operand.Reference]operand.Content{operand.AdmissionPolicies: {Digest: "a"}}
		}, false},
		"the NVIDIADriver objects": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.NVIDIADrivers = []operand.NVIDIADriver{{Name: "a"}}
		}, false},
		"whether these are read": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.NVIDIADriversUnread = "a"
		}, false},
		"OpenShift": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.OpenShiftCluster.Version = "4.18"
		}, false},
		"whether it is read": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.OpenShiftUnread = "a"
		}, false},
		"the driver toolkit": {func(_ *fleet.Basis, _ *v1.ClusterPolicySpec, in *operand.Input) {
			in.DriverToolkit = map[string]string{"a": "b"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			basis, spec := &fleet.Basis{Policy: &v1.ClusterPolicy{}, Decisions: decisionsOf(v1.ClusterPolicySpec{})},
				v1.ClusterPolicySpec{}
			before, input := basis.Decisions, basis.Decisions.Input
			test.change(basis, &spec, &input)
			got := decide(basis, allOperands(), spec, input)
			expectSame(g, got, before, test.reused, name)
			g.Expect(got.Input).To(Equal(input))
		})
	}
	NewWithT(t).Expect(decide(nil, allOperands(), v1.ClusterPolicySpec{}, decisionsOf(v1.ClusterPolicySpec{}).Input)).
		NotTo(BeNil(), "without a basis")
}

// A plan is used again while nothing changes that it depends on. Other nodes than those of the plan count only if they
// give the systems for which DaemonSets are kept without nodes.
func TestWhenAPlanIsReused(t *testing.T) {
	type inputs struct {
		decisions *plan.Decisions
		optional  map[operand.OptionalKind]bool
		view      fleet.View
		live      map[string]*appsv1.DaemonSet
	}
	driverOf := func(pool string) map[string]*appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{}
		ds.Spec.Template.Labels = map[string]string{labels.Pool: pool}
		return map[string]*appsv1.DaemonSet{"a": ds}
	}
	other := func(version string) []*fleet.Entry {
		node := gpuNode("other")
		node.Labels[labels.DiscoveryOSVersion] = version
		delete(node.Labels, labels.DiscoveryPCIPresent)
		return []*fleet.Entry{{Facts: observe.Facts(node)}}
	}
	for _, keep := range []bool{false, true} {
		decisions := func() *plan.Decisions {
			return decisionsOf(v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{KeepWithoutNodes: new(keep)}})
		}
		for name, test := range map[string]struct {
			change func(*inputs)
			reused bool
		}{
			"nothing":       {func(*inputs) {}, true},
			"the decisions": {func(in *inputs) { in.decisions = decisions() }, false},
			"the facts":     {func(in *inputs) { in.view.FactsVersion++ }, false},
			"the kinds": {func(in *inputs) {
				in.optional = map[operand.OptionalKind]bool{operand.PrometheusRule: true}
			}, false},
			"the live DaemonSets":        {func(in *inputs) { in.live = driverOf("ubuntu22.04-amd64") }, false},
			"the system of another node": {func(in *inputs) { in.view.Others = other("22.04") }, !keep},
		} {
			g := NewWithT(t)
			in := inputs{
				decisions(), map[operand.OptionalKind]bool{operand.ServiceMonitor: true},
				fleet.View{FactsVersion: 1, Others: other("24.04")}, driverOf("ubuntu24.04-amd64"),
			}
			c := caches{}
			first := c.compute(in.decisions, in.optional, in.view, in.live)
			g.Expect(first.StandIns).To(Equal(keep), name)
			g.Expect(first.Steps).NotTo(BeEmpty(), name)
			test.change(&in)
			second := c.compute(in.decisions, in.optional, in.view, in.live)
			expectSame(g, &second.Steps[0], &first.Steps[0], test.reused, name)
			g.Expect(second.Input.Optional).To(Equal(in.optional), name)
		}
	}
}

// The objects of an operand, or the error, are used again while nothing changes that they depend on.
func TestWhenObjectsAreReused(t *testing.T) {
	type inputs struct {
		plan  plan.Plan
		step  plan.Step
		owner render.Owner
		live  map[string]rollout.Live
	}
	stepsOf := func(spec v1.ClusterPolicySpec) inputs {
		p := plan.Compute(decisionsOf(spec), nil, []nodeinfo.Facts{observe.Facts(gpuNode("a"))})
		at := slices.IndexFunc(p.Steps, func(step plan.Step) bool { return step.Operand.Name == "device-plugin" })
		return inputs{plan: p, step: p.Steps[at], owner: render.Owner{Name: "policy", UID: "1"}}
	}
	for name, test := range map[string]struct {
		change func(*inputs)
		reused bool
	}{
		"nothing":       {func(*inputs) {}, true},
		"the decisions": {func(in *inputs) { in.plan.Decisions = new(*in.plan.Decisions) }, false},
		"the owner":     {func(in *inputs) { in.owner.UID = "2" }, false},
		"a live DaemonSet": {func(in *inputs) {
			in.live = map[string]rollout.Live{pluginName: {TemplateDigest: "a"}}
		}, false},
		"the layouts of nodes": {func(in *inputs) {
			in.plan.Input.Layouts = []nodeinfo.Layout{{Name: nodeinfo.LayoutOpenShift}}
		}, false},
		"the kinds": {func(in *inputs) {
			in.plan.Input.Optional = map[operand.OptionalKind]bool{operand.ServiceMonitor: true}
		}, false},
		"the instances": {func(in *inputs) {
			in.step.Instances = slices.Clone(in.step.Instances)
			in.step.Instances[0].Image = "example.com/another:v1"
		}, false},
		"the markers that are awaited": {func(in *inputs) { in.step.AwaitedMarkers = nil }, false},
		"the markers that are written": {func(in *inputs) {
			in.step.WritesMarkers = map[labels.Marker]bool{"a": true}
		}, false},
	} {
		g := NewWithT(t)
		in, c := stepsOf(v1.ClusterPolicySpec{}), caches{}
		g.Expect(in.step.AwaitedMarkers).NotTo(BeEmpty())
		first, err := c.render(in.plan, in.step, in.owner, in.live)
		g.Expect(err).NotTo(HaveOccurred(), name)
		test.change(&in)
		second, err := c.render(in.plan, in.step, in.owner, in.live)
		g.Expect(err).NotTo(HaveOccurred(), name)
		expectSame(g, &second[0], &first[0], test.reused, name)
	}
	in, c := stepsOf(v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{
		PlacementSpec: v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{Name: "absent"}}},
	}}), caches{}
	for range 2 {
		objects, err := c.render(in.plan, in.step, in.owner, in.live)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("there is no container absent")))
		NewWithT(t).Expect(objects).To(BeNil())
	}
}

var _ = Describe("The caches of a pass", Ordered, ContinueOnFailure, func() {
	var env *testEnv

	// objects returns the cached objects, by operand.
	objects := func() map[operand.Name][]manifest.Object {
		found := map[operand.Name][]manifest.Object{}
		for name, cached := range env.reconciler.caches.rendered {
			found[name] = cached.objects
		}
		return found
	}

	BeforeAll(func(ctx SpecContext) {
		env = newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
	})
	BeforeEach(func(ctx SpecContext) { env.settle(ctx) })

	It("are reused while nothing changes", func(ctx SpecContext) {
		decisions, before, basis := env.fleet.Basis().Decisions, objects(), env.fleet.Basis()
		Expect(before).To(HaveLen(8))
		env.pass(ctx, statusInterval)
		Expect(env.fleet.Basis().Decisions).To(BeIdenticalTo(decisions))
		Expect(env.fleet.Basis()).To(BeIdenticalTo(basis))
		for name, now := range objects() {
			for i := range now {
				Expect(now[i]).To(BeIdenticalTo(before[name][i]), "%s", name)
			}
		}
		Expect(env.takeWrites()).To(BeEmpty())
	})

	It("are replaced only for the operand whose DaemonSet changes", func(ctx SpecContext) {
		before := objects()
		ds := daemonSet(ctx, pluginName)
		ds.Annotations[labels.TemplateDigest] = "another"
		Expect(admin.Update(ctx, ds)).To(Succeed())
		env.pass(ctx, 0)
		for name, now := range objects() {
			if name == "device-plugin" {
				Expect(now[0]).NotTo(BeIdenticalTo(before[name][0]))
				continue
			}
			Expect(now[0]).To(BeIdenticalTo(before[name][0]))
		}
	})

	DescribeTable("may be lost without a write", func(ctx SpecContext, reset func()) {
		reset()
		next := env.pass(ctx, time.Second)
		env.assessNodes(ctx)
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(BeEmpty())
		Expect(next).To(BeNumerically("<=", 2*time.Second))
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("True Reconciled"))
	},
		Entry("the plan", func() { env.reconciler.caches.plan = planCache{} }),
		Entry("the objects", func() { env.reconciler.caches.rendered = nil }),
		Entry("all caches", func() { env.reconciler.caches = caches{} }),
	)
})
