package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
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

// plan is what to write.
type plan struct {
	changes nodeapi.NodeChanges
	// withNFD is set if Node Feature Discovery labels the node.
	withNFD bool
	// stale are the labels of Node Feature Discovery that differ from the facts, sorted.
	stale []string
}

// empty reports whether there is nothing to write.
func (p plan) empty() bool { return len(p.changes.Labels) == 0 && len(p.changes.Annotations) == 0 }

// newPlan compares the Node with the facts. The plan is for this version of the Node.
func newPlan(mode Mode, node nodeapi.NodeMetadata, facts Facts) plan {
	before := ownLabels(node.Annotations[labels.DiscoveredLabels])
	theirs := map[string]bool{}
	if mode == ModeAuto {
		theirs = listedByNFD(node.Annotations)
	}
	p := plan{withNFD: len(theirs) > 0}
	p.changes = nodeapi.NodeChanges{
		Labels: map[string]*string{}, Annotations: map[string]*string{}, ResourceVersion: node.ResourceVersion,
	}
	own := p.set(node, facts, theirs, before)
	own = append(own, p.remove(node, facts, theirs, before)...)
	p.own(node, own)
	return p
}

// set sets the labels of the facts, and returns those that are discovery's own.
func (p *plan) set(node nodeapi.NodeMetadata, facts Facts, theirs, before map[string]bool) (own []string) {
	nfdLabelsGPUs := slices.ContainsFunc(gpuLabels, func(key string) bool { return theirs[key] })
	for key, value := range facts.Labels {
		now, found := node.Labels[key]
		same := found && now == value
		switch {
		case theirs[key]:
			// GPU Feature Discovery writes its file first, and NFD reads it later.
			if !same && !labels.IsFeature(key) {
				p.stale = append(p.stale, key)
			}
			continue
		case nfdLabelsGPUs && !before[key] && slices.Contains(gpuLabels, key):
			continue
		case !same:
			p.changes.Labels[key] = &value
		}
		own = append(own, key)
	}
	slices.Sort(p.stale)
	return own
}

// remove removes own labels whose facts are no longer true, and returns those that stay nevertheless.
func (p *plan) remove(node nodeapi.NodeMetadata, facts Facts, theirs, before map[string]bool) (own []string) {
	for key := range before {
		_, isTrue := facts.Labels[key]
		_, found := node.Labels[key]
		switch {
		case isTrue || theirs[key] || !found:
		case facts.keeps(key):
			own = append(own, key)
		default:
			p.changes.Labels[key] = nil
		}
	}
	return own
}

// own changes the annotation to these labels, and drops a change that is not worth a write.
func (p *plan) own(node nodeapi.NodeMetadata, own []string) {
	slices.Sort(own)
	list := strings.Join(own, ",")
	switch now, found := node.Annotations[labels.DiscoveredLabels]; {
	case list == "" && found:
		p.changes.Annotations[labels.DiscoveredLabels] = nil
	case list != now:
		p.changes.Annotations[labels.DiscoveredLabels] = &list
	}
	_, timestamp := p.changes.Labels[labels.FeatureTimestamp]
	_, found := node.Labels[labels.FeatureTimestamp]
	if timestamp && found && len(p.changes.Labels) == 1 && len(p.changes.Annotations) == 0 {
		clear(p.changes.Labels)
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

// listedByNFD returns the labels that all instances of Node Feature Discovery have written.
func listedByNFD(annotations map[string]string) map[string]bool {
	theirs := map[string]bool{}
	for annotation, list := range annotations {
		if annotation != labels.NFDFeatureLabels && !strings.HasSuffix(annotation, "."+labels.NFDFeatureLabels) {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			switch {
			case name == "":
			case strings.Contains(name, "/"):
				theirs[name] = true
			default:
				theirs[labels.DiscoveryPrefix+name] = true
			}
		}
	}
	return theirs
}
