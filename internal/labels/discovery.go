package labels

import (
	"regexp"
	"strings"
	"sync"
)

const (
	// NFDFeatureLabels is the annotation in which Node Feature Discovery lists the labels that it has
	// written on a node, separated by commas, DiscoveryPrefix left out. A named instance of it puts
	// its name and a dot in front.
	NFDFeatureLabels = NFDPrefix + "feature-labels"
	// FeatureTimestamp is the label in which GPU Feature Discovery tells when it was started, in
	// seconds since 1970.
	FeatureTimestamp = "nvidia.com/gfd.timestamp"
	// FeaturePattern matches the labels of GPU Feature Discovery: what describes the GPUs, never what
	// decides what is done with them (nvidia.com/gpu.deploy.*, gpu.present, gpu.workload.config,
	// mig.config, vgpu.config, ...). gpu-node discover takes no other from its file. In the syntax of
	// RE2, which CEL has too, so that an admission policy can say the same.
	FeaturePattern = `^nvidia[.]com/(` +
		`gfd[.]timestamp|(cuda|mps)[.].+|mig-.+|mig[.](capable|strategy)|vgpu[.](present|host-driver-(version|branch))|` +
		`gpu[.](machine|count|replicas|sharing-strategy|product|memory|family|mode|clique|multiprocessors)|` +
		`gpu[.](compute|slices|engines)[.].+)$`
)

// Compiled at the first use: most commands of the on-node program have none.
var featurePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(FeaturePattern) })

// IsDiscoverable tells whether gpu-node discover may write the label.
func IsDiscoverable(key string) bool {
	return strings.HasPrefix(key, DiscoveryPrefix) || IsFeature(key)
}

// IsFeature tells whether key is a label of GPU Feature Discovery.
func IsFeature(key string) bool { return featurePattern().MatchString(key) }
