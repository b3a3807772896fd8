package labels

import (
	"regexp"
	"strings"
	"sync"
)

const (
	// NFDFeatureLabels is the annotation in which Node Feature Discovery lists the labels that it has
	// written on a node, separated by commas, without DiscoveryPrefix. A named NFD instance prefixes the
	// key with its name and a dot.
	NFDFeatureLabels = NFDPrefix + "feature-labels"
	// FeatureTimestamp is the label with the time at which GPU Feature Discovery was started, in seconds
	// since 1970.
	FeatureTimestamp = "nvidia.com/gfd.timestamp"
	// FeaturePattern matches the labels of GPU Feature Discovery: those that describe the GPUs, never those
	// that control what is done with them (nvidia.com/gpu.deploy.*, gpu.present, gpu.workload.config,
	// mig.config, vgpu.config, ...). gpu-node discover ignores all others in the file. The syntax is that of
	// RE2, which CEL shares, so that an admission policy can use the same pattern.
	FeaturePattern = `^nvidia[.]com/(` +
		`gfd[.]timestamp|(cuda|mps)[.].+|mig-.+|mig[.](capable|strategy)|vgpu[.](present|host-driver-(version|branch))|` +
		`gpu[.](machine|count|replicas|sharing-strategy|product|memory|family|mode|clique|multiprocessors)|` +
		`gpu[.](compute|slices|engines)[.].+)$`
)

// Compiled on first use: most commands of the on-node program do not need it.
var featurePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(FeaturePattern) })

// IsDiscoverable reports whether gpu-node discover may write the label.
func IsDiscoverable(key string) bool {
	return strings.HasPrefix(key, DiscoveryPrefix) || IsFeature(key)
}

// IsFeature reports whether key is a label of GPU Feature Discovery.
func IsFeature(key string) bool { return featurePattern().MatchString(key) }

// IsNodeFact reports whether key is one of the labels of Node Feature Discovery that gpu-node discover writes too:
// those of the GPUs, the kernel and the operating system.
func IsNodeFact(key string) bool {
	switch key {
	case DiscoveryPCIPresent, DiscoveryPCI3D, DiscoveryPCIVGA, DiscoveryPCIMellanox, DiscoveryKernel, DiscoveryOSID,
		DiscoveryOSVersion, DiscoveryOSVersionMajor, DiscoveryOSVersionMinor, DiscoveryOSTree:
		return true
	}
	return false
}

// ListedByNFD returns the labels that all instances of Node Feature Discovery have written, by the annotations of the
// node.
func ListedByNFD(annotations map[string]string) map[string]bool {
	theirs := map[string]bool{}
	for annotation, list := range annotations {
		if annotation != NFDFeatureLabels && !strings.HasSuffix(annotation, "."+NFDFeatureLabels) {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			switch {
			case name == "":
			case strings.Contains(name, "/"):
				theirs[name] = true
			default:
				theirs[DiscoveryPrefix+name] = true
			}
		}
	}
	return theirs
}
