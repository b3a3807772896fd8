package plan

import (
	"fmt"
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Doubtful returns a sentence for each field of the spec that may not mean what its author intended, because of the
// objects that it references. The fields whose values alone show that are in package fieldnotes.
func (d *Decisions) Doubtful() []string {
	if d == nil {
		return nil
	}
	notes := d.doubtful(d.Input)
	common := len(notes)
	for i := range d.NodePools {
		for _, own := range d.doubtful(d.NodePools[i].in) {
			if !slices.Contains(notes[:common], own) {
				notes = append(notes, fmt.Sprintf("node pool %s: %s", d.NodePools[i].Name, own))
			}
		}
	}
	return notes
}

// doubtful returns the sentences for the nodes that an input is for.
func (d *Decisions) doubtful(in operand.Input) []string {
	var notes []string
	if _, problem := in.DefaultPluginConfig(); problem != "" && *in.Spec.DevicePlugin.Enabled {
		notes = append(notes, problem)
	}
	if *in.Spec.DevicePlugin.Enabled {
		notes = append(notes, in.PluginConfigNotes()...)
	}
	for _, o := range d.Catalogue {
		if o.Doubtful != nil && d.MayRun[o.Name] {
			notes = append(notes, o.Doubtful(in)...)
		}
	}
	return notes
}
