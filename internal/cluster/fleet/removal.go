package fleet

import (
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// Removal is what a node has to know of the deleted policy.
type Removal struct {
	// Force removes the stack although its GPUs are in use.
	Force bool
	// RuntimeClass is the main one, by which pods get GPUs.
	RuntimeClass string
}

// NodeRemoval is how far the removal of the stack has got on a node. It is immutable.
type NodeRemoval struct {
	// Step that was found last.
	Step removal.Step
	// HeldSince is since when pods that use GPUs hold the node; zero if none do.
	HeldSince time.Time
}

// isOver reports whether nothing of the stack is left on the node.
func (r *NodeRemoval) isOver() bool { return r != nil && r.Step.Action == removal.Done }

// differs reports whether the removal has got to another step. Both may be nil.
func (r *NodeRemoval) differs(other *NodeRemoval) bool {
	if r == nil || other == nil {
		return r != other
	}
	return r.Step.Action != other.Step.Action || r.Step.Failed != other.Step.Failed || r.Step.Message != other.Step.Message
}

// Removing returns the nodes from which the stack is not removed yet, by name, and how many of them were not assessed
// by the current Basis. Among all nodes, not only the managed ones, because node discovery writes to others, too.
func (f *Fleet) Removing() (left []*Entry, unseen int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, entry := range f.entries {
		seen := f.basis != nil && entry.BasisVersion == f.basis.Version && entry.Removal != nil
		if seen && entry.Removal.isOver() {
			continue
		}
		if !seen {
			unseen++
		}
		left = append(left, entry)
	}
	slices.SortFunc(left, byName)
	return left, unseen
}
