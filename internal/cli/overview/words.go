package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UsableText returns how many GPUs of the node are usable, such as 7/8; empty if their number is not known.
func (n *Node) UsableText() string {
	if n.GPUs.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", n.GPUs.Usable, n.GPUs.Total)
}

// FreeText returns how many devices are free; those that are not whole GPUs of nvidia.com/gpu with their resource.
func (n *Node) FreeText() string {
	if n.ByClaims {
		return "by claims"
	}
	var all []string
	for _, r := range n.Resources {
		free := "?"
		if r.Free != nil {
			free = fmt.Sprint(*r.Free)
		}
		if r.Name != labels.ResourceGPU {
			free += " " + strings.TrimPrefix(r.Name, labels.VendorPrefix)
		}
		all = append(all, free)
	}
	return strings.Join(all, ", ")
}

// MIGText returns the MIG layout that is requested, and its state unless it is applied; empty for none.
func (n *Node) MIGText() string {
	switch {
	case n.MIG == nil:
		return ""
	case n.MIG.Layout == labels.MIGAllDisabled && (n.MIG.State == "" || n.MIG.State == labels.MIGStateSuccess):
		return ""
	case n.MIG.State == "":
		return n.MIG.Layout + " (not applied)"
	case n.MIG.State == labels.MIGStateSuccess:
		return n.MIG.Layout
	}
	return n.MIG.Layout + " (" + n.MIG.State + ")"
}

// UpgradeText returns the state of an upgrade that is not done.
func (n *Node) UpgradeText() string {
	if n.Upgrade == string(upgrade.StateDone) {
		return ""
	}
	return n.Upgrade
}

// SinceText returns how long the node has been in its state at a time, such as 5m; empty if that is not known.
func (n *Node) SinceText(now time.Time) string {
	if n.Since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(n.Since.Time))
}

// Unready returns those of the nodes that are neither ready nor excluded.
func Unready(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Ready == Ready || n.Ready == Excluded })
}

// IsUpgrading reports whether a driver is still to be upgraded, or its upgrade has failed.
func (p *Policy) IsUpgrading() bool {
	return p.Upgrade != nil && p.Upgrade.Pending+p.Upgrade.InProgress+p.Upgrade.Failed > 0
}
