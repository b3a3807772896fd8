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

// Doubtful returns the sentences of the Decisions, and one for each field that may not mean what its author intended on
// the nodes of a driver pool.
func (p Plan) Doubtful() []string {
	notes := p.Decisions.Doubtful()
	if p.Decisions == nil {
		return nil
	}
	for i := range p.Catalogue {
		o := &p.Catalogue[i]
		if o.DoubtfulOnPool == nil || !p.MayRun[o.Name] {
			continue
		}
		for _, pool := range p.Pools {
			for _, note := range o.DoubtfulOnPool(p.InputForNodePool(o, pool.NodePool), pool) {
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
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
	var running []*operand.Operand
	for i := range d.Catalogue {
		o := &d.Catalogue[i]
		if !d.MayRun[o.Name] {
			continue
		}
		running = append(running, o)
		if o.Doubtful != nil {
			notes = append(notes, o.Doubtful(in)...)
		}
	}
	return append(notes, in.UnreadKeys(running)...)
}
