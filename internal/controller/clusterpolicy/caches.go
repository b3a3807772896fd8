package clusterpolicy

import (
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// caches keep the results of a pass for the next one: most passes follow the progress of a node, which changes none of
// them. Each result is kept with all of its inputs and computed again when one differs. It may be lost at any time.
type caches struct {
	plan     planCache
	rendered map[operand.Name]renderCache
}

// decide returns the decisions for the input, which is computed from this spec. Those of the basis are reused unless
// they are for another spec or other references. The specs are compared, not only their generations: while the CRD
// changes, the same generation may be read with other fields.
func decide(
	basis *fleet.Basis, catalogue operand.Catalogue, spec v1.ClusterPolicySpec, input operand.Input,
) *plan.Decisions {
	if basis == nil || basis.Decisions == nil || !reflect.DeepEqual(basis.Policy.Spec, spec) ||
		basis.Decisions.Input.AppliedSpec != input.AppliedSpec ||
		!reflect.DeepEqual(basis.Decisions.Input.Contents, input.Contents) ||
		!reflect.DeepEqual(basis.Decisions.Input.NVIDIADrivers, input.NVIDIADrivers) ||
		basis.Decisions.Input.NVIDIADriversUnread != input.NVIDIADriversUnread ||
		basis.Decisions.Input.OpenShiftCluster != input.OpenShiftCluster ||
		basis.Decisions.Input.OpenShiftUnread != input.OpenShiftUnread ||
		!reflect.DeepEqual(basis.Decisions.Input.DriverToolkit, input.DriverToolkit) {
		return plan.Decide(catalogue, input)
	}
	return basis.Decisions
}

// planCache is a plan with its inputs.
type planCache struct {
	decisions     *plan.Decisions
	optionalKinds map[operand.OptionalKind]bool
	factsVersion  uint64
	standIns      []nodeinfo.Facts
	// variants are those of the live DaemonSets.
	variants []string
	plan     plan.Plan
}

// compute returns the plan for the nodes of the view.
func (c *caches) compute(
	decisions *plan.Decisions, optionalKinds map[operand.OptionalKind]bool, view fleet.View,
	daemonSets map[string]*appsv1.DaemonSet,
) plan.Plan {
	cached := &c.plan
	var standIns []nodeinfo.Facts
	variants := rollout.Variants(daemonSets)
	if *decisions.Input.Spec.Operator.KeepWithoutNodes {
		standIns = decisions.StandIns(view.AllFacts(), variants)
	}
	if cached.decisions != decisions || cached.factsVersion != view.FactsVersion ||
		!maps.Equal(cached.optionalKinds, optionalKinds) || !reflect.DeepEqual(cached.standIns, standIns) ||
		!slices.Equal(cached.variants, variants) {
		nodes := decisions.Relabel(view.Facts(), variants)
		*cached = planCache{
			decisions: decisions, optionalKinds: optionalKinds, factsVersion: view.FactsVersion, standIns: standIns,
			variants: variants, plan: plan.Compute(decisions, optionalKinds, append(nodes, standIns...)),
		}
	}
	return cached.plan
}

// renderCache is the objects of one step with their inputs.
type renderCache struct {
	decisions *plan.Decisions
	input     operand.Input
	step      plan.Step
	owner     render.Owner
	live      map[string]rollout.Live
	objects   []manifest.Object
	err       error
}

// render returns the objects of a step of the plan, given the live DaemonSets of its operand. The same objects are
// returned until an input changes; callers must not modify them.
func (c *caches) render(
	p plan.Plan, step plan.Step, owner render.Owner, live map[string]rollout.Live,
) ([]manifest.Object, error) {
	cached, found := c.rendered[step.Operand.Name]
	if found && cached.decisions == p.Decisions && cached.owner == owner && maps.Equal(cached.live, live) &&
		reflect.DeepEqual(cached.input.Layouts, p.Input.Layouts) && maps.Equal(cached.input.Optional, p.Input.Optional) &&
		sameStep(&cached.step, &step) {
		return cached.objects, cached.err
	}
	if c.rendered == nil {
		c.rendered = map[operand.Name]renderCache{}
	}
	next := renderCache{decisions: p.Decisions, input: p.Input, step: step, owner: owner, live: live}
	next.objects, next.err = render.Step(p, step, owner, live)
	c.rendered[step.Operand.Name] = next
	return next.objects, next.err
}

// sameStep reports whether two steps of one operand render to the same objects.
func sameStep(a, b *plan.Step) bool {
	return reflect.DeepEqual(a.Instances, b.Instances) && reflect.DeepEqual(a.AwaitedMarkers, b.AwaitedMarkers) &&
		maps.Equal(a.WritesMarkers, b.WritesMarkers)
}
