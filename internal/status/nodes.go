package status

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// node is an entry of the fleet with its StatusAssessment, and the upgrade of its driver.
type node struct {
	*fleet.Entry
	*assess.Assessment
	upgrade upgrade.Progress
}

// worstFirst returns the nodes by severity, then by name.
func worstFirst(view fleet.View) []node {
	nodes := make([]node, 0, len(view.Nodes))
	for _, entry := range view.Nodes {
		nodes = append(nodes, node{entry, entry.StatusAssessment(), upgradeOf(&view, entry)})
	}
	// The view is sorted by name.
	slices.SortStableFunc(nodes, func(a, b node) int { return cmp.Compare(a.severity(), b.severity()) })
	return nodes
}

func summarise(nodes []node) *v1.NodeSummary {
	summary := &v1.NodeSummary{}
	for _, node := range nodes {
		if node.Excluded {
			summary.Excluded++
			continue
		}
		summary.Total++
		switch node.State {
		case readiness.Ready:
			summary.Ready++
		case readiness.Progressing:
			summary.Progressing++
		case readiness.Failed:
			summary.Degraded++
		}
		if node.isUpgrading() {
			summary.Upgrading++
		}
		if gpus := nodeGPUs(node); gpus != nil {
			if summary.GPUs == nil {
				summary.GPUs = &v1.NodeGPUs{}
			}
			summary.GPUs.Total = boundedSum(summary.GPUs.Total, gpus.Total)
			summary.GPUs.Usable = boundedSum(summary.GPUs.Usable, gpus.Usable)
		}
	}
	summary.ReadyOfTotal = ratio(int(summary.Ready), int(summary.Total))
	return summary
}

// boundedSum adds two counts. Nodes may claim any number of GPUs, so that the sum may not fit.
func boundedSum(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// CountNodes counts the GPU nodes by stage and state, without the excluded ones.
func CountNodes(view fleet.View) map[metrics.StageState]int {
	counts := map[metrics.StageState]int{}
	for _, entry := range view.Nodes {
		if shown := entry.StatusAssessment(); !shown.Excluded {
			counts[stageState(shown)]++
		}
	}
	return counts
}

// CountMIGFailed counts the GPU nodes whose MIG layout could not be applied, without the excluded ones.
func CountMIGFailed(view fleet.View) int {
	count := 0
	for _, entry := range view.Nodes {
		if shown := entry.StatusAssessment(); !shown.Excluded && shown.Reason == v1.ReasonMIGConfigFailed {
			count++
		}
	}
	return count
}

func stageState(shown *assess.Assessment) metrics.StageState {
	switch shown.State {
	case readiness.Ready:
		return metrics.StageState{Stage: v1.StageValidated, State: metrics.Ready}
	case readiness.Failed:
		return metrics.StageState{Stage: shown.Stage, State: metrics.Degraded}
	case readiness.Progressing:
	}
	return metrics.StageState{Stage: shown.Stage, State: metrics.Progressing}
}

// severity returns the sort key of a node; the worst is 0.
func (n node) severity() int {
	switch {
	case n.State == readiness.Failed:
		return 0
	case n.Excluded:
		return 5
	case n.State == readiness.Progressing:
		return 1
	case n.upgrade.State == upgrade.StateFailed:
		return 2
	case n.upgrade.State.InProgress():
		return 3
	case n.isUpgrading(), n.Reason != "":
		return 4
	default:
		return 6
	}
}

// listNodes returns the entries of the worst nodes. An entry whose cause has not changed keeps its message: the detail
// may differ with each restart of a container.
func listNodes(nodes []node, before []v1.NodeStatus) []v1.NodeStatus {
	previous := make(map[string]*v1.NodeStatus, len(before))
	for i := range before {
		previous[before[i].Name] = &before[i]
	}
	entries, remaining := make([]v1.NodeStatus, 0, min(len(nodes), maxListed)), maxListedBytes
	for i := range nodes[:min(len(nodes), maxListed)] {
		listed := nodeStatus(nodes[i])
		old := previous[listed.Name]
		if old != nil && !nodes[i].DetailLasts && sameCause(old, &listed) &&
			assess.MessageUpToDate(old.Message, nodes[i].Message, listed.Message) {
			listed.Message = old.Message
		}
		if remaining -= encodedSize(&listed); remaining < 0 {
			break
		}
		entries = append(entries, listed)
	}
	return entries
}

// encodedSize returns the bytes of an entry in JSON.
func encodedSize(entry *v1.NodeStatus) int {
	// Encoding strings and times never fails.
	data, _ := json.Marshal(entry)
	return len(data)
}

func nodeStatus(n node) v1.NodeStatus {
	entry := v1.NodeStatus{
		Name:    n.Facts.Name,
		Ready:   n.Ready(),
		Stage:   n.Stage,
		Pool:    n.Facts.Pool,
		Operand: n.Operand,
		Reason:  n.Reason,
		Pod:     n.NodeVerdict.Pod,
		Message: text.JoinWithin(n.NodeVerdict.Message, n.Detail, maxMessage),
		Upgrade: nodeUpgrade(n.upgrade),
		GPUs:    nodeGPUs(n),
		Offers:  text.Truncate(n.Offer, maxOffers),
	}
	if !entry.Ready {
		entry.Since = new(metav1.NewTime(n.Since.Truncate(time.Second)))
	}
	return entry
}

// maxOffers is the longest description of what a node offers, in bytes.
const maxOffers = 256

// nodeGPUs returns the GPUs of a node, nil while it advertises none.
func nodeGPUs(n node) *v1.NodeGPUs {
	if n.GPUs.Total == 0 {
		return nil
	}
	return &v1.NodeGPUs{Total: int32(n.GPUs.Total), Usable: int32(n.GPUs.Usable)}
}

func sameCause(a, b *v1.NodeStatus) bool {
	return a.Ready == b.Ready && a.Stage == b.Stage && a.Operand == b.Operand && a.Reason == b.Reason &&
		a.Pod == b.Pod
}
