package nodeinfo

import (
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// The container runtimes that the toolkit can configure, as nodes name them in containerRuntimeVersion.
const (
	RuntimeContainerd = "containerd"
	RuntimeCRIO       = "cri-o"
	RuntimeDocker     = "docker"
)

// Distribution is who laid out a node's container runtime, as far as that differs from what the runtime
// does by itself; empty for all others.
type Distribution string

// Layout is where a container runtime has its files on the host. The nodes of one layout share a
// DaemonSet of the container toolkit. A path is empty where the runtime has no such file, or where it is
// not known.
type Layout struct {
	// Name of the layout: the value of the node label that the DaemonSet selects, and the end of its name.
	Name string
	// Runtime is one of those above.
	Runtime string
	// Config is the file to which the toolkit adds the import of DropIn's directory, DropIn the file that it
	// writes the runtimes to, Socket the container runtime's own.
	Config, DropIn, Socket string
	// ConfigSource is where the toolkit reads the present configuration, and Executable the program that
	// it asks for it, as RUNTIME_CONFIG_SOURCE and RUNTIME_EXECUTABLE_PATH. Empty for the toolkit's defaults.
	ConfigSource, Executable string
	// HooksDir is where the runtime looks for OCI hooks.
	HooksDir string
	// FindsToolkit: the distribution writes the runtime's configuration at each start, and adds the
	// toolkit's runtimes by itself, by their default names and from their default directory.
	FindsToolkit bool
}

// Traits are what a Node says of the distribution that laid it out.
type Traits struct {
	// Kubelet, OSImage and RuntimeVersion are kubeletVersion, osImage and the version in
	// containerRuntimeVersion of the node's nodeInfo.
	Kubelet, OSImage, RuntimeVersion string
	// Labels of the node.
	Labels map[string]string
}

// DistributionOf recognises the distributions whose layouts differ. The first row that fits decides.
func DistributionOf(traits Traits) Distribution {
	for _, row := range layouts {
		if row.recognise != nil && row.recognise(traits) {
			return row.distribution
		}
	}
	return ""
}

// layoutFor finds the layout of a runtime as a distribution lays it out. A distribution that does so with
// one runtime only leaves the others as they are.
func layoutFor(distribution Distribution, runtime string) (Layout, bool) {
	for _, expected := range []Distribution{distribution, ""} {
		for _, row := range layouts {
			if row.distribution == expected && row.Runtime == runtime {
				return row.Layout, true
			}
		}
	}
	return Layout{}, false
}

// ExpectedLayout is the layout that the node's facts put it in, or false if its runtime is not one of
// those that the toolkit can configure.
func (f Facts) ExpectedLayout() (Layout, bool) { return layoutFor(f.Distribution, f.Runtime) }

// EffectiveLayout is the same, and the layout that the node is labelled with as long as it does not say
// which runtime it has.
func (f Facts) EffectiveLayout() (Layout, bool) {
	if f.Runtime != "" {
		return f.ExpectedLayout()
	}
	for _, row := range layouts {
		if f.Layout != "" && row.Name == f.Layout {
			return row.Layout, true
		}
	}
	return Layout{}, false
}

// Layouts are those of the managed nodes that operands may run on, each once, sorted by name.
func Layouts(nodes []Facts) []Layout {
	var found []Layout
	for _, node := range nodes {
		layout, known := node.EffectiveLayout()
		if known && node.Managed() && !node.Excluded && !slices.Contains(found, layout) {
			found = append(found, layout)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found
}

func kubeletContains(part string) func(Traits) bool {
	return func(n Traits) bool { return strings.Contains(n.Kubelet, part) }
}

func osImageStartsWith(part string) func(Traits) bool {
	return func(n Traits) bool { return strings.HasPrefix(n.OSImage, part) }
}

func labelled(key string) func(Traits) bool {
	return func(n Traits) bool { _, exists := n.Labels[key]; return exists }
}

// since recognises a kubelet of this release or a newer one.
func since(minimum string, and func(Traits) bool) func(Traits) bool {
	least := version.MustParseGeneric(minimum)
	return func(n Traits) bool { return and(n) && atLeast(n.Kubelet, least) }
}

// runtimeSince recognises a container runtime of this version or a newer one, whichever runtime that is: the
// row says which it is for.
func runtimeSince(minimum string) func(Traits) bool {
	least := version.MustParseGeneric(minimum)
	return func(n Traits) bool { return atLeast(n.RuntimeVersion, least) }
}

func atLeast(has string, least *version.Version) bool {
	parsed, err := version.ParseGeneric(has)
	return err == nil && parsed.AtLeast(least)
}
