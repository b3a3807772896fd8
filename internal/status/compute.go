package status

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// maxListed bounds status.nodes, so that the object is as large at 150 nodes as at 5,000.
const maxListed = 100

// maxListedBytes bounds them too, where names are very long or messages full of what JSON escapes: 100 entries of
// 63 characters' name and the longest message fit.
const maxListedBytes = 40 << 10

// maxMessage bounds the message of a node.
const maxMessage = 128

// maxOperandMessage bounds the message of an operand.
const maxOperandMessage = 1024

// maxConditionMessage bounds the message of a condition.
const maxConditionMessage = 1024

// Pass is what a pass has found out and done, as far as it got.
type Pass struct {
	Namespace string
	Snapshot  observe.Snapshot
	Plan      plan.Plan
	Catalogue []operand.Operand
	// Applied holds what came of applying each operand's objects.
	Applied map[operand.Name]Outcome
	// CreateFailures tell why DaemonSets, by name, lack pods.
	CreateFailures map[string]observe.CreateFailure
	// Places, unless nil, is filled with the number of GPU nodes by where they are.
	Places map[metrics.Place]int
	// Memory of the passes before, nil for none.
	Memory *Memory
	// Lacking are the fields that the definition of ClusterPolicy in the cluster lacks.
	Lacking []string
	// Err is what stopped the pass, or went wrong after all was applied.
	Err error
	// Now is the time of the pass.
	Now time.Time
}

// Outcome is what came of applying an operand's objects.
type Outcome struct {
	// Wrote tells that an object was written in this pass, so that what was observed of it is old.
	Wrote bool
	// Pending are the objects that are not as the spec says, and are left so as the policy is paused.
	Pending int
	// Err is all that went wrong.
	Err error
}

// Failure joins the failed calls of the pass, for which it is to be tried again at once. What others
// own and what the API server calls invalid is none of them: trying again does not help.
func (p Pass) Failure() error {
	failures := []error{p.Err}
	for _, step := range p.Plan.Steps {
		err := p.Applied[step.Operand.Name].Err
		if err != nil && !errors.Is(err, apply.ErrConflict) && !errors.Is(err, ErrPrerequisite) && !isInvalid(err) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// Conflicts tells whether an object that the pass wanted belongs to somebody else. No event tells
// when it is gone: the caches hold what is the operator's.
func (p Pass) Conflicts() bool {
	for _, outcome := range p.Applied {
		if errors.Is(outcome.Err, apply.ErrConflict) {
			return true
		}
	}
	return false
}

// assessedNode is a managed node with the verdict on it.
type assessedNode struct {
	*observe.Node
	NodeAssessment
	// nodePool is the pool of spec.nodePools that it belongs to, driverPool the driver pool; empty for none.
	nodePool, driverPool string
}

// Compute says about the policy what the pass has found. A pass that could not observe leaves what
// was said of operands and nodes as it was. The time is when a verdict changes by itself, so that a
// pass is due though nothing happens; zero if there is none.
func Compute(policy *v1.ClusterPolicy, pass Pass) (v1.ClusterPolicyStatus, time.Time) {
	status := *policy.Status.DeepCopy()
	status.Namespace = pass.Namespace
	status.ObservedGeneration = policy.Generation
	setFields(&status, policy.Spec)
	if len(pass.Plan.Steps) == 0 && pass.Err != nil {
		setConditions(&status, finding{ready: metav1.ConditionFalse, reason: v1.ReasonReconcileFailed, message: pass.Err.Error(), degraded: true})
		setPaused(&status, policy.Spec)
		return status, time.Time{}
	}
	nodes := assess(pass)
	status.NodeSummary = summarise(nodes)
	status.Nodes = listNodes(nodes, policy.Status.Nodes)
	status.NodeSummary.Listed = int32(len(status.Nodes))
	status.Operands = operandStatuses(pass, nodes, policy.Status.Operands)
	status.Pools, status.NodePools = pools(pass, nodes), nodePools(pass, nodes)
	setConditions(&status, judge(pass, status))
	setPaused(&status, policy.Spec)
	setDefinition(&status, pass.Lacking, pass.Namespace)
	var next time.Time
	for _, node := range nodes {
		if place, counts := node.place(); counts && pass.Places != nil {
			pass.Places[place]++
		}
		next = sooner(next, node.Until)
	}
	pass.Memory.letGo()
	return status, next
}

// Ignored is the status of a policy beside the one in force.
func Ignored(policy *v1.ClusterPolicy, namespace, active string) v1.ClusterPolicyStatus {
	status := v1.ClusterPolicyStatus{
		State:              v1.StateIgnored,
		Namespace:          namespace,
		ObservedGeneration: policy.Generation,
		Conditions:         policy.DeepCopy().Status.Conditions,
	}
	setFields(&status, policy.Spec)
	setConditions(&status, finding{
		ready: metav1.ConditionFalse, reason: v1.ReasonIgnored,
		message: "ClusterPolicy " + active + " is older and in force: delete one of the two",
	})
	status.State = v1.StateIgnored
	return status
}

// assess judges the nodes, as far as the verdicts of the pass before hold no longer.
func assess(pass Pass) []*assessedNode {
	nodes := make([]*assessedNode, 0, len(pass.Snapshot.Nodes))
	stack := Stack{DaemonSets: pass.Snapshot.DaemonSets, CreateFailures: pass.CreateFailures}
	for i := range pass.Snapshot.Nodes {
		node := &pass.Snapshot.Nodes[i]
		if known := pass.Memory.recall(node, pass.Now); known != nil {
			nodes = append(nodes, known)
			continue
		}
		planned := pass.Plan.ForNode(pass.Catalogue, node.Facts)
		judged := &assessedNode{
			Node:           node,
			NodeAssessment: AssessNode(planned, node.Object, pass.Snapshot.Pods[node.Facts.Name], stack, pass.Now),
			nodePool:       planned.NodePool, driverPool: cmp.Or(node.Facts.Pool, planned.Pool.Name),
		}
		pass.Memory.keep(judged)
		nodes = append(nodes, judged)
	}
	pass.Memory.forgetOthers(nodes)
	return nodes
}

func summarise(nodes []*assessedNode) *v1.NodeSummary {
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
		if node.Outdated {
			summary.Upgrading++
		}
	}
	summary.ReadyOfTotal = ratio(int(summary.Ready), int(summary.Total))
	return summary
}

// place is where the node is for those who count, unless it is kept free of operands.
func (n *assessedNode) place() (place metrics.Place, counts bool) {
	place = metrics.Place{Stage: n.Stage, State: metrics.Progressing}
	switch n.State {
	case readiness.Ready:
		place = metrics.Place{Stage: v1.StageValidated, State: metrics.Ready}
	case readiness.Failed:
		place.State = metrics.Degraded
	case readiness.Progressing:
	}
	return place, !n.Excluded
}

// severity orders nodes, worst first.
func (n *assessedNode) severity() int {
	switch {
	case n.State == readiness.Failed:
		return 0
	case n.Excluded:
		return 3
	case n.State == readiness.Progressing:
		return 1
	case n.Outdated, n.Reason == v1.ReasonDiscoveryLabelsMissing:
		return 2
	default:
		return 4
	}
}

// listNodes writes the entries of the worst nodes. A failure whose cause is the same as before keeps
// its message, which may hold what changes with each attempt of a container.
func listNodes(nodes []*assessedNode, before []v1.NodeStatus) []v1.NodeStatus {
	slices.SortFunc(nodes, func(a, b *assessedNode) int {
		return cmp.Or(cmp.Compare(a.severity(), b.severity()), strings.Compare(a.Facts.Name, b.Facts.Name))
	})
	known := make(map[string]*v1.NodeStatus, len(before))
	for i := range before {
		known[before[i].Name] = &before[i]
	}
	entries, left := make([]v1.NodeStatus, 0, min(len(nodes), maxListed)), maxListedBytes
	for i := range nodes[:min(len(nodes), maxListed)] {
		entry := nodeStatus(nodes[i])
		if old := known[entry.Name]; old != nil && sameCause(old, &entry) && Says(old.Message, nodes[i].Message, entry.Message) {
			entry.Message = old.Message
		}
		if left -= encodedSize(&entry); left < 0 {
			break
		}
		entries = append(entries, entry)
	}
	return entries
}

// encodedSize is how many bytes an entry has in JSON.
func encodedSize(entry *v1.NodeStatus) int {
	// What has a time and texts can be encoded.
	data, _ := json.Marshal(entry)
	return len(data)
}

func nodeStatus(node *assessedNode) v1.NodeStatus {
	entry := v1.NodeStatus{
		Name:    node.Facts.Name,
		Ready:   node.State == readiness.Ready,
		Stage:   node.Stage,
		Pool:    node.Facts.Pool,
		Operand: node.Operand,
		Reason:  node.Reason,
		Message: truncate(node.Text(), maxMessage),
	}
	if condition := GPUReadyCondition(node.Object); condition != nil && !entry.Ready {
		if since := condition.LastTransitionTime; condition.Status != "True" && !since.IsZero() {
			entry.Since = since.DeepCopy()
		}
	}
	return entry
}

func sameCause(a, b *v1.NodeStatus) bool {
	return a.Ready == b.Ready && a.Stage == b.Stage && a.Operand == b.Operand && a.Reason == b.Reason
}

// finding is what is to be said about the policy as a whole.
type finding struct {
	ready           metav1.ConditionStatus
	reason, message string
	degraded        bool
	progressing     bool
}

func setConditions(status *v1.ClusterPolicyStatus, f finding) {
	status.State = v1.StateNotReady
	isError := metav1.ConditionTrue
	if f.ready == metav1.ConditionTrue {
		status.State, isError = v1.StateReady, metav1.ConditionFalse
	}
	set := func(kind string, value metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: truncate(message, maxConditionMessage), ObservedGeneration: status.ObservedGeneration,
		})
	}
	set(v1.ConditionReady, f.ready, f.reason, f.message)
	flag := func(kind string, is bool, reason, message string) {
		if is {
			set(kind, metav1.ConditionTrue, reason, message)
			return
		}
		set(kind, metav1.ConditionFalse, v1.ReasonNone, "")
	}
	if f.progressing && f.degraded {
		flag(v1.ConditionProgressing, true, v1.ReasonOperandNotReady, waiting(*status))
	} else {
		flag(v1.ConditionProgressing, f.progressing, f.reason, f.message)
	}
	flag(v1.ConditionDegraded, f.degraded, f.reason, f.message)
	set(v1.ConditionError, isError, f.reason, f.message)
}

func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "..."
	cut := most - len(more)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + more
}
