package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// Mode selects what to do about the labels of Node Feature Discovery.
type Mode string

const (
	// ModeAuto leaves the labels that Node Feature Discovery lists alone.
	ModeAuto Mode = "auto"
	// ModeBuiltin ignores Node Feature Discovery.
	ModeBuiltin Mode = "builtin"
)

// ParseMode returns the mode of this name.
func ParseMode(name string) (Mode, error) {
	if mode := Mode(name); mode == ModeAuto || mode == ModeBuiltin {
		return mode, nil
	}
	return "", fmt.Errorf("unknown discovery mode %q; use %s or %s", name, ModeAuto, ModeBuiltin)
}

// changes are what to write.
type changes struct {
	patch nodeapi.NodeChanges
	// withNFD is set if Node Feature Discovery labels the node.
	withNFD bool
	// stale are the labels of Node Feature Discovery that differ from the findings, sorted.
	stale []string
}

// empty reports whether there is nothing to write.
func (c changes) empty() bool { return len(c.patch.Labels) == 0 && len(c.patch.Annotations) == 0 }

// newChanges compares the Node with the findings. The changes are for this version of the Node.
func newChanges(mode Mode, node nodeapi.NodeMetadata, findings Findings) changes {
	before := ownLabels(node.Annotations[labels.DiscoveredLabels])
	theirs := map[string]bool{}
	if mode == ModeAuto {
		theirs = labels.ListedByNFD(node.Annotations)
	}
	c := changes{withNFD: len(theirs) > 0}
	c.patch = nodeapi.NodeChanges{
		Labels: map[string]*string{}, Annotations: map[string]*string{}, ResourceVersion: node.ResourceVersion,
	}
	own := c.set(node, findings, theirs, before)
	own = append(own, c.remove(node, findings, theirs, before)...)
	c.countGPUs(node, findings)
	c.annotateOwn(node, own)
	return c
}

// set sets the labels of the findings, and returns those that are discovery's own.
func (c *changes) set(node nodeapi.NodeMetadata, findings Findings, theirs, before map[string]bool) (own []string) {
	nfdLabelsGPUs := slices.ContainsFunc(gpuLabels, func(key string) bool { return theirs[key] })
	for key, value := range findings.Labels {
		now, found := node.Labels[key]
		same := found && now == value
		switch {
		case theirs[key]:
			// GPU Feature Discovery writes its file first, and NFD reads it later.
			if !same && !labels.IsFeature(key) {
				c.stale = append(c.stale, key)
			}
			continue
		case nfdLabelsGPUs && !before[key] && slices.Contains(gpuLabels, key):
			continue
		case !same:
			c.patch.Labels[key] = &value
		}
		own = append(own, key)
	}
	slices.Sort(c.stale)
	return own
}

// remove removes own labels that are no longer found, and returns those that stay nevertheless.
func (c *changes) remove(node nodeapi.NodeMetadata, findings Findings, theirs, before map[string]bool) (own []string) {
	for key := range before {
		_, isFound := findings.Labels[key]
		_, found := node.Labels[key]
		switch {
		case isFound || theirs[key] || !found:
		case findings.keeps(key):
			own = append(own, key)
		default:
			c.patch.Labels[key] = nil
		}
	}
	return own
}

// countGPUs changes the annotation with the number of GPUs on the bus. It stays while the driver is not loaded.
func (c *changes) countGPUs(node nodeapi.NodeMetadata, findings Findings) {
	now, found := node.Annotations[labels.GPUsOnBus]
	switch count := strconv.Itoa(findings.GPUsOnBus); {
	case findings.NoGPU && found:
		c.patch.Annotations[labels.GPUsOnBus] = nil
	case findings.GPUsOnBus > 0 && count != now:
		c.patch.Annotations[labels.GPUsOnBus] = &count
	}
}

// annotateOwn changes the annotation to these labels, and drops a change that is not worth a write.
func (c *changes) annotateOwn(node nodeapi.NodeMetadata, own []string) {
	slices.Sort(own)
	list := strings.Join(own, ",")
	switch now, found := node.Annotations[labels.DiscoveredLabels]; {
	case list == "" && found:
		c.patch.Annotations[labels.DiscoveredLabels] = nil
	case list != now:
		c.patch.Annotations[labels.DiscoveredLabels] = &list
	}
	_, timestamp := c.patch.Labels[labels.FeatureTimestamp]
	_, found := node.Labels[labels.FeatureTimestamp]
	if timestamp && found && len(c.patch.Labels) == 1 && len(c.patch.Annotations) == 0 {
		clear(c.patch.Labels)
	}
}

// ownLabels reads the annotation. Labels that discovery never writes are ignored, in case another writer has
// changed the annotation.
func ownLabels(list string) map[string]bool {
	own := map[string]bool{}
	for key := range strings.SplitSeq(list, ",") {
		if labels.IsDiscoverable(key) {
			own[key] = true
		}
	}
	return own
}
