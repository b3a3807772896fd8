package clusterpolicy

import (
	"maps"
	"reflect"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// drafts keep what a pass has made for the next one: most passes are about how far nodes have come, which changes none of
// it. Each part is kept with all that it was made of, and made anew when that differs; it may be lost at any time.
type drafts struct {
	plan    planDraft
	objects map[operand.Name]objectsDraft
}

// decide returns the decisions for the input, which is made of this spec: those that nodes are assessed by, unless they
// were made of another spec or of other references. The spec is compared, and not its generation alone: around a change of
// the definition the same generation may be shown with other fields.
func decide(
	basis *fleet.Basis, catalogue operand.Catalogue, written v1.ClusterPolicySpec, input operand.Input,
) *plan.Decisions {
	if basis == nil || basis.Decisions == nil || !reflect.DeepEqual(basis.Policy.Spec, written) ||
		basis.Decisions.Input.AppliedSpec != input.AppliedSpec ||
		!reflect.DeepEqual(basis.Decisions.Input.Contents, input.Contents) ||
		!reflect.DeepEqual(basis.Decisions.Input.DriverToolkit, input.DriverToolkit) {
		return plan.Decide(catalogue, input)
	}
	return basis.Decisions
}

// planDraft is the plan for the facts of that version.
type planDraft struct {
	decisions *plan.Decisions
	optional  map[operand.OptionalKind]bool
	facts     uint64
	made      plan.Plan
}

// compute returns the plan for the nodes of the view.
func (d *drafts) compute(decisions *plan.Decisions, optional map[operand.OptionalKind]bool, view fleet.View) plan.Plan {
	kept := &d.plan
	if kept.decisions != decisions || kept.facts != view.FactsVersion || !maps.Equal(kept.optional, optional) {
		*kept = planDraft{decisions: decisions, optional: optional, facts: view.FactsVersion, made: plan.Compute(decisions, optional, view.Facts())}
	}
	return kept.made
}

// objectsDraft are the objects of one step.
type objectsDraft struct {
	decisions *plan.Decisions
	input     operand.Input
	step      plan.Step
	owner     render.Owner
	live      map[string]render.Live
	made      []render.Object
	err       error
}

// render returns the objects of a step of the plan, beside these DaemonSets of its operand. They are the same ones until
// they have to be others, and not to be changed.
func (d *drafts) render(p plan.Plan, step plan.Step, owner render.Owner, live map[string]render.Live) ([]render.Object, error) {
	kept, known := d.objects[step.Operand.Name]
	if known && kept.decisions == p.Decisions && kept.owner == owner && maps.Equal(kept.live, live) &&
		reflect.DeepEqual(kept.input.Layouts, p.Input.Layouts) && maps.Equal(kept.input.Optional, p.Input.Optional) && sameStep(&kept.step, &step) {
		return kept.made, kept.err
	}
	if d.objects == nil {
		d.objects = map[operand.Name]objectsDraft{}
	}
	next := objectsDraft{decisions: p.Decisions, input: p.Input, step: step, owner: owner, live: live}
	next.made, next.err = render.Step(p, step, owner, live)
	d.objects[step.Operand.Name] = next
	return next.made, next.err
}

// sameStep reports whether the same objects follow from two steps of one operand.
func sameStep(a, b *plan.Step) bool {
	return reflect.DeepEqual(a.Instances, b.Instances) && reflect.DeepEqual(a.Waits, b.Waits) && maps.Equal(a.Proves, b.Proves)
}
