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

// Distribution is the Kubernetes distribution that installed a node's container runtime, if its layout differs from the
// runtime's defaults; empty for all others.
type Distribution string

// Layout is where a container runtime has its files on the host. The nodes of one layout share a DaemonSet of the
// container toolkit. A path is empty if the runtime has no such file, or if it is unknown.
type Layout struct {
	// Name of the layout: the value of the node label that the DaemonSet selects by, and the suffix of its name.
	Name string
	// Runtime is one of RuntimeContainerd, RuntimeCRIO and RuntimeDocker.
	Runtime string
	// Config is the file to which the toolkit adds an import of DropIn's directory, DropIn the file to which it writes
	// the runtimes, Socket the socket of the container runtime.
	Config, DropIn, Socket string
	// ConfigSource (RUNTIME_CONFIG_SOURCE) is where the toolkit reads the current configuration, and Executable
	// (RUNTIME_EXECUTABLE_PATH) the program that prints it. Empty for the toolkit's defaults.
	ConfigSource, Executable string
	// HooksDir is the runtime's directory of OCI hooks.
	HooksDir string
	// FindsToolkit: the distribution writes the runtime's configuration at each start, and adds the toolkit's runtimes
	// itself, with their default names and from their default directory.
	FindsToolkit bool
}

// Traits are the properties of a Node that identify its distribution.
type Traits struct {
	// Kubelet, OSImage and RuntimeVersion are kubeletVersion, osImage and the version in
	// containerRuntimeVersion of the node's nodeInfo.
	Kubelet, OSImage, RuntimeVersion string
	// Labels of the node.
	Labels map[string]string
}

// DistributionOf returns the distribution of a node, by the first row of layouts that matches; empty if none does.
func DistributionOf(traits Traits) Distribution {
	for _, row := range layouts {
		if row.recognise != nil && row.recognise(traits) {
			return row.distribution
		}
	}
	return ""
}

// layoutFor returns the layout of a runtime in a distribution, or the runtime's default if the distribution has none.
func layoutFor(distribution Distribution, runtime string) (Layout, bool) {
	for _, candidate := range []Distribution{distribution, ""} {
		for _, row := range layouts {
			if row.distribution == candidate && row.Runtime == runtime {
				return row.Layout, true
			}
		}
	}
	return Layout{}, false
}

// LayoutByFacts returns the layout by the node's facts, or false if the toolkit cannot configure its runtime.
func (f Facts) LayoutByFacts() (Layout, bool) { return layoutFor(f.Distribution, f.Runtime) }

// KnownLayout returns the layout by the node's facts, or the one that the node is labelled with if the kubelet has not
// reported the runtime yet.
func (f Facts) KnownLayout() (Layout, bool) {
	if f.Runtime != "" {
		return f.LayoutByFacts()
	}
	for _, row := range layouts {
		if f.Layout != "" && row.Name == f.Layout {
			return row.Layout, true
		}
	}
	return Layout{}, false
}

// Layouts returns the layouts of the managed nodes that operands may run on, each once, sorted by name.
func Layouts(nodes []Facts) []Layout {
	var found []Layout
	for _, node := range nodes {
		layout, known := node.KnownLayout()
		if known && node.TakesOperands() && !slices.Contains(found, layout) {
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

// since matches a kubelet of this release or a newer one.
func since(minimum string, and func(Traits) bool) func(Traits) bool {
	least := version.MustParseGeneric(minimum)
	return func(n Traits) bool { return and(n) && atLeast(n.Kubelet, least) }
}

// runtimeSince matches a container runtime of this version or a newer one. It does not check which runtime that is.
func runtimeSince(minimum string) func(Traits) bool {
	least := version.MustParseGeneric(minimum)
	return func(n Traits) bool { return atLeast(n.RuntimeVersion, least) }
}

func atLeast(has string, least *version.Version) bool {
	parsed, err := version.ParseGeneric(has)
	return err == nil && parsed.AtLeast(least)
}
