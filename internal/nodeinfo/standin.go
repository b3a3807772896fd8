package nodeinfo

import "slices"

// architectures are those of published driver images, in Go's terms.
var architectures = []string{"amd64", "arm64"}

// StandIn returns the facts of a GPU node that does not exist, of a variant of nodes: the name of a layout of the
// container runtime, or of a driver pool; empty for a node of which nothing else is known. It returns false if the
// variant has too little information, as the name of a driver pool with one kernel, release of CoreOS or node pool.
func StandIn(variant string) (Facts, bool) {
	facts := Facts{StandsIn: true, HasGPU: true}
	if variant == "" {
		return facts, true
	}
	facts.Layout = variant
	if _, isLayout := facts.KnownLayout(); isLayout {
		return facts, true
	}
	_, architecture, found := cutLast(variant, "-")
	facts.Layout, facts.Pool, facts.Architecture = "", variant, architecture
	return facts, found && slices.Contains(architectures, architecture)
}
