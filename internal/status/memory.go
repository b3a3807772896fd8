package status

import (
	"maps"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// Memory keeps the verdicts on nodes from one pass to the next. A node is judged anew once it has changed itself,
// its pods have, what is the same for all nodes has, or its verdict is due to change by itself. It may be lost at
// any time.
type Memory struct {
	// of is what the verdicts were made of.
	of       circumstances
	verdicts map[string]remembered
	// common are verdicts on operands that several nodes have alike, as those do on which all is well: kept once, they
	// take less memory, and a pass that counts thousands of them finds them in the processor's caches.
	common []map[operand.Name]readiness.Verdict
}

// commonAtMost bounds them: a cluster has few kinds of nodes.
const commonAtMost = 16

// remembered is a verdict on one version of a node.
type remembered struct {
	*assessedNode
	version uint64
}

// circumstances are what verdicts are made of besides the node and its pods.
type circumstances struct {
	input          operand.Input
	daemonSets     map[string]daemonSetState
	createFailures map[string]observe.CreateFailure
}

// daemonSetState is what verdicts on nodes are made of in a DaemonSet: not how its pods are.
type daemonSetState struct {
	uid             types.UID
	generation      int64
	digest, operand string
	deleted         bool
}

func stateOf(ds *appsv1.DaemonSet) daemonSetState {
	return daemonSetState{
		uid: ds.UID, generation: ds.Generation, digest: ds.Annotations[labels.TemplateDigest],
		operand: ds.Labels[labels.Operand], deleted: ds.DeletionTimestamp != nil,
	}
}

// Wanted are the nodes whose pods Compute needs to see for this pass: those that it judges, and those of which
// nobody knows what they have.
func (m *Memory) Wanted(pass Pass) []string {
	now := circumstances{
		input: pass.Plan.Input, createFailures: pass.CreateFailures,
		daemonSets: make(map[string]daemonSetState, len(pass.Snapshot.DaemonSets)),
	}
	for name, ds := range pass.Snapshot.DaemonSets {
		now.daemonSets[name] = stateOf(ds)
	}
	if m.verdicts == nil || !reflect.DeepEqual(m.of, now) {
		m.of, m.verdicts = now, map[string]remembered{}
	}
	var wanted []string
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if m.recall(node, pass.Now) == nil {
			wanted = append(wanted, node.Facts.Name)
		}
	}
	for name := range pass.Snapshot.Undiscovered {
		wanted = append(wanted, name)
	}
	return wanted
}

// recall returns the verdict on the node if it still holds, nil else.
func (m *Memory) recall(node *observe.Node, now time.Time) *assessedNode {
	if m == nil {
		return nil
	}
	found, known := m.verdicts[node.Facts.Name]
	if !known || found.version != node.Version || (!found.Until.IsZero() && !now.Before(found.Until)) {
		return nil
	}
	// The object is of another list, and as it was.
	found.Node = node
	return found.assessedNode
}

// keep remembers the verdict on a node.
func (m *Memory) keep(node *assessedNode) {
	if m == nil {
		return
	}
	if node.State == readiness.Ready {
		node.Operands = m.share(node.Operands)
	}
	m.verdicts[node.Facts.Name] = remembered{assessedNode: node, version: node.Version}
}

// share returns verdicts that are equal to these.
func (m *Memory) share(verdicts map[operand.Name]readiness.Verdict) map[operand.Name]readiness.Verdict {
	for _, known := range m.common {
		if maps.Equal(known, verdicts) {
			return known
		}
	}
	if len(m.common) == commonAtMost {
		m.common = m.common[1:]
	}
	m.common = append(m.common, verdicts)
	return verdicts
}

// letGo ends a pass: what is remembered would keep the whole list of nodes from being freed.
func (m *Memory) letGo() {
	if m == nil {
		return
	}
	for _, verdict := range m.verdicts {
		verdict.Node = nil
	}
}

// forgetOthers drops the verdicts on nodes that are none of these.
func (m *Memory) forgetOthers(nodes []*assessedNode) {
	if m == nil || len(m.verdicts) <= len(nodes) {
		return
	}
	there := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		there[node.Facts.Name] = true
	}
	maps.DeleteFunc(m.verdicts, func(name string, _ remembered) bool { return !there[name] })
}
