package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// stages are the columns of the table.
var stages = []v1.Stage{
	v1.StageDiscovered, v1.StageDriver, v1.StageToolkit, v1.StageDevicePlugin, v1.StageAllocatable, v1.StageValidated,
}

// frame is the state of the cluster at one moment; the zero value has no policy.
type frame struct {
	policy *v1.ClusterPolicy
	// rows are the GPU nodes, sorted by name.
	rows []row
}

// row is one GPU node.
type row struct {
	name string
	// verdict is the assessment of the node at this moment.
	verdict readiness.NodeVerdict
	// condition is the one that the operator has written to the Node, nil if none.
	condition *corev1.NodeCondition
}

func (f *frame) sort() {
	slices.SortFunc(f.rows, func(a, b row) int { return cmp.Compare(a.name, b.name) })
}

// worst returns at most n rows, those that need attention first: failed, then those in the earliest stage. If all
// rows fit, their order is kept, so that a node stays in its line.
func (f frame) worst(n int) []row {
	if len(f.rows) <= n {
		return f.rows
	}
	rows := slices.Clone(f.rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.rank(), b.rank()) })
	return rows[:n]
}

func (r row) rank() int {
	if r.verdict.State == readiness.Failed {
		return -1
	}
	return r.reached()
}

// reached returns how many stages the node has completed.
func (r row) reached() int {
	if r.verdict.State == readiness.Ready {
		return len(stages)
	}
	return slices.Index(stages, r.verdict.Stage)
}

// word returns what the operator reports of the node, without the node's name at the start of the message, which the
// row already has.
func (r row) word() string {
	if r.condition == nil {
		return "-"
	}
	message := strings.TrimPrefix(r.condition.Message, r.name+": ")
	if isTrue(r.condition) {
		return message
	}
	return r.condition.Reason + ": " + message
}

// ready counts the nodes that the operator reports as ready.
func (f frame) ready() int {
	count := 0
	for _, r := range f.rows {
		if isTrue(r.condition) {
			count++
		}
	}
	return count
}

// done reports whether policy, summary and every node agree that this number of nodes is ready.
func (f frame) done(nodes int) bool {
	if f.policy == nil || !isReady(f.policy) || f.policy.Status.NodeSummary == nil {
		return false
	}
	summary := f.policy.Status.NodeSummary
	return int(summary.Total) == nodes && int(summary.Ready) == nodes && f.ready() == nodes
}

// counts returns how many nodes have completed each stage, of all GPU nodes of the cluster: rows are those that have
// been found.
func (f frame) counts(nodes int) string {
	reached := make([]int, len(stages))
	failed := 0
	for _, r := range f.rows {
		for i := range r.reached() {
			reached[i]++
		}
		if r.verdict.State == readiness.Failed {
			failed++
		}
	}
	var parts []string
	for i, stage := range stages {
		parts = append(parts, fmt.Sprintf("%s %d", stage, reached[i]))
	}
	text := strings.Join(parts, ", ") + fmt.Sprintf(" of %d", nodes)
	if failed > 0 {
		text += fmt.Sprintf("; failed %d", failed)
	}
	return text
}

// verdict returns what the operator reports of the policy.
func (f frame) verdict() string {
	if f.policy == nil {
		return "no policy yet"
	}
	st := f.policy.Status
	text := string(cmp.Or(st.State, v1.StateNotReady))
	if st.NodeSummary != nil {
		text += " " + st.NodeSummary.ReadyOfTotal
	}
	for _, condition := range st.Conditions {
		if condition.Type == v1.ConditionReady && condition.Message != "" {
			text += fmt.Sprintf(", %s: %s", condition.Reason, condition.Message)
		}
	}
	return text
}
