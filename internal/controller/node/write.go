package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// A failure, the first verdict and that a node is ready are written at once. Other stages of its way, and that it lacks
// discovery labels, only once they have lasted: what lasts some seconds is of no use to anybody when it is read. Where
// a thousand nodes take many minutes, each must not be written at each step.
const (
	// settle is how long that is at first.
	settle = 10 * time.Second
	// settlePerNode comes on top for each node that waits so: what many write at a time slows all of them.
	settlePerNode = 150 * time.Millisecond
	// slower is by what it grows with each stage that has been written on the same way, and longestSettle where it ends.
	slower, longestSettle = 4, 160 * time.Second
)

// patchMetadata writes changes of labels and annotations in one call; nil values remove keys. It
// fails with a conflict if the node has changed since it was read: a value that somebody else has
// just written must not be overwritten.
func (r *Reconciler) patchMetadata(ctx context.Context, node *corev1.Node, labelChanges, annotationChanges map[string]*string) error {
	if len(labelChanges) == 0 && len(annotationChanges) == 0 {
		return nil
	}
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	if len(labelChanges) > 0 {
		metadata["labels"] = labelChanges
	}
	if len(annotationChanges) > 0 {
		metadata["annotations"] = annotationChanges
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding labels of node %s: %w", node.Name, err)
	}
	return r.patch(ctx, node, patch, "labels")
}

// patch changes the node, which has this version from then on: what is written next is guarded by that.
func (r *Reconciler) patch(ctx context.Context, node *corev1.Node, patch []byte, what string) error {
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if err := r.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patching %s of node %s: %w", what, node.Name, err)
	}
	r.seen.Wrote(node.Name, written.ResourceVersion)
	node.ResourceVersion = written.ResourceVersion
	return nil
}

// writeCondition writes the condition nvidia.com/GPUReady if the assessment says something else than
// it does, and tells after how long to come back where the write has to wait.
func (r *Reconciler) writeCondition(ctx context.Context, node *corev1.Node, assessment status.NodeAssessment) (time.Duration, error) {
	condition := status.NodeCondition(node.Name, assessment)
	before := status.GPUReadyCondition(node)
	if before != nil && sameCause(before, &condition, status.NodeCause(node.Name, assessment)) {
		r.pending.drop(node.Name)
		return 0, nil
	}
	settles := before != nil && (assessment.State == readiness.Progressing || assessment.Reason == v1.ReasonDiscoveryLabelsMissing)
	if settles {
		if left := r.pending.left(node.Name, standing(before, &condition, assessment)); left > 0 {
			return left, nil
		}
	}
	now := metav1.NewTime(r.Clock.Now())
	condition.LastHeartbeatTime, condition.LastTransitionTime = now, now
	if before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	log.FromContext(ctx).Info("Setting condition", "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	r.pending.wrote(node.Name, settles && before.Status == condition.Status)
	if event, tells := status.NodeEvent(node, before, &condition, assessment); tells {
		r.Events.Record(ctx, event)
	}
	return 0, r.patchCondition(ctx, node, condition)
}

// sameCause tells whether the condition says already what is to be said.
func sameCause(before, after *corev1.NodeCondition, cause string) bool {
	return before.Status == after.Status && before.Reason == after.Reason && status.Says(before.Message, cause, after.Message)
}

// standing is what must last before it is written: of a node on its way the stage and the reason, of
// one that was ready that it is not, whatever the reasons are by turns.
func standing(before, after *corev1.NodeCondition, assessment status.NodeAssessment) string {
	if before.Status == corev1.ConditionTrue {
		return string(after.Status)
	}
	return fmt.Sprintf("%s %s %s", after.Status, assessment.Stage, after.Reason)
}

func (r *Reconciler) patchCondition(ctx context.Context, node *corev1.Node, condition any) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return fmt.Errorf("encoding condition of node %s: %w", node.Name, err)
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if err := r.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return fmt.Errorf("patching condition of node %s: %w", node.Name, err)
	}
	r.seen.Wrote(node.Name, written.ResourceVersion)
	node.ResourceVersion = written.ResourceVersion
	return nil
}

// release takes what the operator wrote off the node: labels, annotations, condition and taints. present is the
// value that nvidia.com/gpu.present keeps on a node that has lost its GPUs; it is empty where the policy
// is gone, and then all goes. Start-up taints go last, and may be refused: the time is after how long to try that
// again.
func (r *Reconciler) release(ctx context.Context, node *corev1.Node, present string) (time.Duration, error) {
	annotations, changes := map[string]*string{}, map[string]*string{}
	if wasManaged(node) {
		changes = plan.ReleasedLabels(r.Catalogue, node.Labels, present)
	}
	if _, noted := node.Annotations[labels.DiscoveryMissingSince]; noted {
		annotations[labels.DiscoveryMissingSince] = nil
	}
	if _, noted := node.Annotations[labels.DiscoveryLostSince]; noted && present == "" {
		// It stays until then as the mark of who wrote that label.
		annotations[labels.DiscoveryLostSince] = nil
	}
	if present == "" {
		undiscover(node, changes, annotations)
	}
	if err := r.patchMetadata(ctx, node, changes, annotations); err != nil {
		return 0, err
	}
	if status.GPUReadyCondition(node) != nil {
		if err := r.patchCondition(ctx, node, map[string]string{"type": labels.ConditionGPUReady, "$patch": "delete"}); err != nil {
			return 0, err
		}
	}
	return r.writeTaints(ctx, node, v1.NodeStartupSpec{}, plan.ReleaseTaints)
}

// undiscover takes off what node discovery has written: its pods go with the policy.
func undiscover(node *corev1.Node, changes, annotations map[string]*string) {
	keys, discovered := node.Annotations[labels.Discovered]
	if !discovered {
		return
	}
	annotations[labels.Discovered] = nil
	for key := range strings.SplitSeq(keys, ",") {
		// The list is written on the node: it may name what discovery has the right to write, and no more.
		if _, there := node.Labels[key]; there && labels.IsDiscoverable(key) {
			changes[key] = nil
		}
	}
}

// settling remembers since when nodes have had a verdict that is not written yet, and how many stages of their way
// have been. Losing it delays a write or makes one early, and does nothing else.
type settling struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	nodes map[string]unwritten
	// waiting counts the nodes that have a state that is not written.
	waiting int
}

type unwritten struct {
	// state that is not written, empty for none, and since when.
	state string
	since time.Time
	// settle is how long it must last, zero for the shortest.
	settle time.Duration
}

func newSettling(c clock.PassiveClock) *settling {
	return &settling{clock: c, nodes: map[string]unwritten{}}
}

// left is how long the node must still be in this state before it is written.
func (s *settling) left(node, state string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.nodes[node]
	if have.state != state {
		have.state, have.since = state, s.clock.Now()
		s.set(node, have)
	}
	return s.lasts(have) - s.clock.Since(have.since)
}

// lasts is how long a state must last in all.
func (s *settling) lasts(state unwritten) time.Duration {
	return min(max(state.settle, settle+time.Duration(s.waiting-1)*settlePerNode), longestSettle)
}

// onTheirWay counts the nodes that have a state that is not written.
func (s *settling) onTheirWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// drop forgets a state that is over without having been written.
func (s *settling) drop(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(node, unwritten{settle: s.nodes[node].settle})
}

// wrote notes what was written: one more stage on the node's way, or what ends the way.
func (s *settling) wrote(node string, stage bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := unwritten{}
	if stage {
		next.settle = min(slower*s.lasts(s.nodes[node]), longestSettle)
	}
	s.set(node, next)
}

func (s *settling) set(node string, state unwritten) {
	if s.nodes[node].state != "" {
		s.waiting--
	}
	if state.state != "" {
		s.waiting++
	}
	if state == (unwritten{}) {
		delete(s.nodes, node)
		return
	}
	s.nodes[node] = state
}

// forget drops all that is known of a node.
func (s *settling) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(node, unwritten{})
}
