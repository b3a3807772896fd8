package clusterpolicy

import (
	"reflect"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/render"
)

// blueprint keeps the plan and the objects of the last pass for the next one: most passes are about how far nodes have
// come, which changes neither. Both follow from what is compared here and nothing else, so that it may be lost at any
// time.
type blueprint struct {
	// input and facts are what the plan was made of.
	input operand.Input
	facts uint64
	plan  *plan.Plan

	// owner and live are what the objects were made of besides the plan.
	owner   render.Owner
	live    map[string]render.Live
	objects map[operand.Name]renderedStep
}

// renderedStep is what rendering a step has led to.
type renderedStep struct {
	objects []render.Object
	err     error
}

// planned is the plan for the cluster as the snapshot shows it.
func (b *blueprint) planned(catalogue []operand.Operand, input operand.Input, snapshot observe.Snapshot) plan.Plan {
	if b.plan == nil || b.facts != snapshot.FactsVersion || !reflect.DeepEqual(b.input, input) {
		computed := plan.Compute(catalogue, input, snapshot.Facts)
		*b = blueprint{input: input, facts: snapshot.FactsVersion, plan: &computed}
	}
	return *b.plan
}

// rendersFor tells for whom the objects of the plan are rendered, and beside which DaemonSets.
func (b *blueprint) rendersFor(owner render.Owner, live map[string]render.Live) {
	if b.objects == nil || b.owner != owner || !reflect.DeepEqual(b.live, live) {
		b.owner, b.live, b.objects = owner, live, map[operand.Name]renderedStep{}
	}
}

// rendered are the objects of a step of the plan. They are the same ones until they have to be others, and not to be
// changed.
func (b *blueprint) rendered(step plan.Step) ([]render.Object, error) {
	found, known := b.objects[step.Operand.Name]
	if !known {
		found.objects, found.err = render.Step(*b.plan, step, b.owner, b.live)
		b.objects[step.Operand.Name] = found
	}
	return found.objects, found.err
}
