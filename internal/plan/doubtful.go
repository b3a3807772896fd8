package plan

import "fmt"

// Doubtful returns a sentence for each field of the spec that may not mean what its author intended, because of the
// objects that it references. The fields whose values alone show that are in package fieldnotes.
func (d *Decisions) Doubtful() []string {
	if d == nil || !*d.Input.Spec.DevicePlugin.Enabled {
		return nil
	}
	var notes []string
	_, problem := d.Input.DefaultPluginConfig()
	if problem != "" {
		notes = append(notes, problem)
	}
	for i := range d.NodePools {
		_, own := d.NodePools[i].in.DefaultPluginConfig()
		if own != "" && own != problem {
			notes = append(notes, fmt.Sprintf("node pool %s: %s", d.NodePools[i].Name, own))
		}
	}
	return notes
}
