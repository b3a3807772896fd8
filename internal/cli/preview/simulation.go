package preview

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// simulation runs the planner of the operator until it grants no further slot. All upgrades of a round end at the same
// time, and succeed.
type simulation struct {
	cluster upgrade.Cluster
	// rounds by node.
	rounds map[string]int
	report upgrade.Report
}

// run fills rounds and report. Each iteration lets one planned step happen: nodes that become due, or a round.
func (s *simulation) run() {
	s.rounds = map[string]int{}
	// Each node becomes due, is upgraded, and is up to date then, each at most once.
	round := 1
	for range 3*len(s.cluster.Nodes) + 1 {
		planned := s.cluster.Plan()
		s.report = planned.Report
		if s.begin(planned.Steps) {
			continue
		}
		if planned.Slots != nil {
			s.cluster.Slots = planned.Slots
		}
		if !s.upgrade(round) {
			return
		}
		round++
	}
}

// begin carries out the patches by which nodes become due, or not due any more. It reports whether there were any.
func (s *simulation) begin(steps []upgrade.Step) bool {
	begun := false
	for _, step := range steps {
		if step.Action != upgrade.ActionPatch || step.Patch.State.InProgress() {
			continue
		}
		n := s.node(step.Node)
		if n == nil || n.Record != nil && n.Record.State.InProgress() {
			continue
		}
		begun = true
		n.State, n.Record, n.Unreadable = step.Patch.State, step.Patch.Record, ""
		n.Requested = n.Requested && !step.Patch.EndRequest
		if step.Patch.Unschedulable != nil {
			n.Unschedulable = *step.Patch.Unschedulable
		}
	}
	return begun
}

// upgrade completes the upgrades of all nodes that have a slot or are in progress. It reports whether there were any.
func (s *simulation) upgrade(round int) bool {
	upgraded := false
	for i := range s.cluster.Nodes {
		n := &s.cluster.Nodes[i]
		running := n.Record != nil && n.Record.State.InProgress() || n.State.InProgress()
		if !n.Installs || n.Unreadable != "" || s.rounds[n.Name] > 0 || !running && !s.cluster.Slots.Valid(n) {
			continue
		}
		upgraded = true
		s.rounds[n.Name] = round
		if n.Record != nil && n.Record.Cordoned {
			n.Unschedulable = false
		}
		done := upgrade.Record{UID: n.UID, State: upgrade.StateDone, Target: n.Target}
		if n.Record != nil {
			done.Round = n.Record.Round
		}
		n.State, n.Record, n.MoveTo, n.GPUReady = upgrade.StateDone, &done, "", true
		n.Driver = &upgrade.Pod{Name: n.Name, UID: newPod, Digest: n.Target, Ready: true}
	}
	return upgraded
}

func (s *simulation) node(name string) *upgrade.Node {
	for i := range s.cluster.Nodes {
		if s.cluster.Nodes[i].Name == name {
			return &s.cluster.Nodes[i]
		}
	}
	return nil
}

// result returns the upgrade of a node; nil if its driver is and stays up to date.
func (s *simulation) result(name string) *NodeUpgrade {
	if round := s.rounds[name]; round > 0 {
		return &NodeUpgrade{Name: name, Round: round}
	}
	progress, reported := s.report.Nodes[name]
	if !reported {
		return nil
	}
	return &NodeUpgrade{Name: name, Reason: progress.Reason, Message: progress.Message}
}

// slots returns the slots that the operator has granted.
func (c *Cluster) slots() upgrade.Slots {
	for _, configMap := range inNamespace[*corev1.ConfigMap](c) {
		if configMap.Name == labels.UpgradeSlots {
			slots, _ := upgrade.DecodeSlots(maps.Clone(configMap.Data))
			return slots
		}
	}
	return nil
}
