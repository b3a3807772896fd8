package preview

import (
	"errors"
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
)

// Rendition is what the operator applies in a cluster.
type Rendition struct {
	// Policy is the name of the ClusterPolicy.
	Policy string
	// Paused: spec.paused is true, so that the operator would only report.
	Paused bool
	// OperatorImage is the image of the operator, and Mirror the registry that Edit.AtSource has removed.
	OperatorImage, Mirror string
	// Objects in the order in which they are applied. Those at the end are applied when driver upgrades move the first
	// node to them.
	Objects []manifest.Object
	// Failed has the errors of the operands whose objects cannot be rendered; nil if there are none. Invalid are the
	// operands, node pools and NVIDIADrivers that the operator would refuse.
	Failed  error
	Invalid []string
	// Notes are sentences about the policy and the objects. ImageNotes are those about images which are missing or may be
	// others.
	Notes, ImageNotes []string
}

// Render computes the Rendition after an edit. It fails if the operator would not apply the policy.
func Render(c *Cluster, edit Edit, now time.Time) (*Rendition, error) {
	clone := *c
	clone.edited = edit.Policy != nil
	p, err := passOf(&clone, edit, now)
	if err != nil {
		return nil, err
	}
	first := renderedOf(p.cluster, p.plan, p.edit.Policy)
	later := first.appearing(renderedOf(p.cluster, p.moved, p.edit.Policy))
	found := &Rendition{
		Policy: p.edit.Policy.Name, Paused: p.plan.Input.Paused(), OperatorImage: p.plan.Input.OperatorImage,
		Mirror: p.cluster.mirror, Objects: slices.Concat(first.objects, later), Invalid: Invalid(p.plan, p.facts),
	}
	var kept []string
	for _, object := range p.cluster.unrendered(&first) {
		kept = append(kept, describe(object)+" stays as it is in the cluster, and is not among these objects")
	}
	found.Notes, found.ImageNotes = append(p.notes(), kept...), append(p.imageNotes(), kept...)
	for _, refused := range first.refused {
		found.Failed = errors.Join(found.Failed, errors.New(refused.Message))
	}
	for _, object := range later {
		found.Notes = append(found.Notes, describe(object)+" would be applied when driver upgrades move the first node to it")
	}
	return found, nil
}

// describe returns kind and name.
func describe(object manifest.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}

// unrendered returns the live objects that are neither rendered nor deleted, as their operand is held, or cannot be
// rendered for all nodes.
func (c *Cluster) unrendered(r *renderedObjects) []manifest.Object {
	all := apply.Rendered{}
	for _, object := range r.objects {
		all.Add(object)
	}
	deleted := c.pruned(&r.kept)
	return slices.DeleteFunc(c.pruned(&all), func(object manifest.Object) bool {
		return slices.ContainsFunc(deleted, func(other manifest.Object) bool { return isSame(object, other) })
	})
}
