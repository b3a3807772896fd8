package discover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// Mode tells what to do beside Node Feature Discovery.
type Mode string

const (
	// ModeAuto leaves the labels that Node Feature Discovery lists to it.
	ModeAuto Mode = "auto"
	// ModeBuiltin takes no notice of Node Feature Discovery.
	ModeBuiltin Mode = "builtin"
)

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	if mode := Mode(name); mode == ModeAuto || mode == ModeBuiltin {
		return mode, nil
	}
	return "", fmt.Errorf("there is no mode %q of discovery; use %s or %s", name, ModeAuto, ModeBuiltin)
}

// plan is what to write.
type plan struct {
	changes nodeapi.NodeChanges
	// beside tells that Node Feature Discovery labels the node.
	beside bool
	// stale are the labels of Node Feature Discovery that do not tell what the node does, sorted.
	stale []string
}

// empty tells that there is nothing to write.
func (p plan) empty() bool { return len(p.changes.Labels) == 0 && len(p.changes.Annotations) == 0 }

// newPlan compares the Node with the facts. It is made for that version of the Node.
func newPlan(mode Mode, node nodeapi.NodeMetadata, facts Facts) plan {
	before := ownLabels(node.Annotations[labels.Discovered])
	theirs := map[string]bool{}
	if mode == ModeAuto {
		theirs = listedByNFD(node.Annotations)
	}
	p := plan{beside: len(theirs) > 0}
	p.changes = nodeapi.NodeChanges{
		Labels: map[string]*string{}, Annotations: map[string]*string{}, ResourceVersion: node.ResourceVersion,
	}
	own := p.tell(node, facts, theirs, before)
	own = append(own, p.withdraw(node, facts, theirs, before)...)
	p.own(node, own)
	return p
}

// tell sets the labels of the facts, and returns those that are discovery's own.
func (p *plan) tell(node nodeapi.NodeMetadata, facts Facts, theirs, before map[string]bool) (own []string) {
	theyTellOfGPUs := slices.ContainsFunc(gpuLabels, func(key string) bool { return theirs[key] })
	for key, value := range facts.Labels {
		now, there := node.Labels[key]
		same := there && now == value
		switch {
		case theirs[key]:
			// GPU Feature Discovery tells both, one after the other.
			if !same && !labels.IsFeature(key) {
				p.stale = append(p.stale, key)
			}
			continue
		case theyTellOfGPUs && !before[key] && slices.Contains(gpuLabels, key):
			continue
		case !same:
			p.changes.Labels[key] = &value
		}
		own = append(own, key)
	}
	slices.Sort(p.stale)
	return own
}

// withdraw removes own labels whose facts no longer hold, and returns those that stay nevertheless.
func (p *plan) withdraw(node nodeapi.NodeMetadata, facts Facts, theirs, before map[string]bool) (own []string) {
	for key := range before {
		_, holds := facts.Labels[key]
		_, there := node.Labels[key]
		switch {
		case holds || theirs[key] || !there:
		case facts.keeps(key):
			own = append(own, key)
		default:
			p.changes.Labels[key] = nil
		}
	}
	return own
}

// own changes the annotation to these labels, and forgets a change that is not worth a write.
func (p *plan) own(node nodeapi.NodeMetadata, own []string) {
	slices.Sort(own)
	list := strings.Join(own, ",")
	switch now, there := node.Annotations[labels.Discovered]; {
	case list == "" && there:
		p.changes.Annotations[labels.Discovered] = nil
	case list != now:
		p.changes.Annotations[labels.Discovered] = &list
	}
	_, timestamp := p.changes.Labels[labels.FeatureTimestamp]
	_, there := node.Labels[labels.FeatureTimestamp]
	if timestamp && there && len(p.changes.Labels) == 1 && len(p.changes.Annotations) == 0 {
		clear(p.changes.Labels)
	}
}

// ownLabels reads the annotation. A label that discovery never writes is nothing of its own, whatever
// somebody has written there.
func ownLabels(list string) map[string]bool {
	own := map[string]bool{}
	for key := range strings.SplitSeq(list, ",") {
		if labels.IsDiscoverable(key) {
			own[key] = true
		}
	}
	return own
}

// listedByNFD returns the labels that Node Feature Discovery, all its instances, has written.
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
