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

// StandInsLike returns the facts of GPU nodes that do not exist, one for each system of the nodes: operating system,
// kernel, architecture and container runtime. Excluded nodes are left out, and those
// whose operating system has not been discovered.
func StandInsLike(nodes []Facts) []Facts {
	var like []Facts
	seen := map[[8]string]bool{}
	for _, node := range nodes {
		system := [...]string{
			node.OSID, node.OSVersion, node.OSTree, node.OSImage, node.Kernel, node.Architecture, node.Runtime,
			string(node.Distribution),
		}
		if node.ExcludedByLabel || node.OSTag() == "" || seen[system] {
			continue
		}
		seen[system] = true
		like = append(like, Facts{
			StandsIn: true, HasGPU: true,
			OSID: node.OSID, OSVersion: node.OSVersion, OSTree: node.OSTree, OSImage: node.OSImage, Kernel: node.Kernel,
			Architecture: node.Architecture, Runtime: node.Runtime, Distribution: node.Distribution,
		})
	}
	return like
}
