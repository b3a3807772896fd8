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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// settle is how long a node must have been at another stage of its way before that is written: a
// stage that lasts some seconds is of no use to anybody when it is read. A failure, the first verdict
// and that the node is ready are written at once.
const settle = 10 * time.Second

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
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if err := r.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patching labels of node %s: %w", node.Name, err)
	}
	r.seen.Wrote(node.Name, written.ResourceVersion)
	return nil
}

// writeCondition writes the condition nvidia.com/GPUReady if the assessment says something else than
// it does, and tells after how long to come back where the write has to wait.
func (r *Reconciler) writeCondition(ctx context.Context, node *corev1.Node, assessment status.NodeAssessment) (time.Duration, error) {
	condition := status.NodeCondition(node.Name, assessment)
	before := status.GPUReadyCondition(node)
	if before != nil && sameCause(before, &condition, status.NodeCause(node.Name, assessment)) {
		r.pending.forget(node.Name)
		return 0, nil
	}
	if before != nil && assessment.State == readiness.Progressing {
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
	r.pending.forget(node.Name)
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
	return nil
}

// release takes what the operator wrote off the node: labels, annotation and condition. present is the
// value that nvidia.com/gpu.present keeps on a node that has lost its GPUs; it is empty where the policy
// is gone, and then all goes.
func (r *Reconciler) release(ctx context.Context, node *corev1.Node, present string) error {
	annotations, changes := map[string]*string{}, map[string]*string{}
	if wasManaged(node) {
		changes = plan.ReleasedLabels(r.Catalogue, node.Labels, present)
	}
	if _, noted := node.Annotations[labels.DiscoveryLostSince]; noted && present == "" {
		// It stays until then as the mark of who wrote that label.
		annotations[labels.DiscoveryLostSince] = nil
	}
	if keys, discovered := node.Annotations[labels.Discovered]; discovered && present == "" {
		// The pods that wrote them go with the policy.
		annotations[labels.Discovered] = nil
		for key := range strings.SplitSeq(keys, ",") {
			// The list is written on the node: it may name what discovery has the right to write, and no more.
			if _, there := node.Labels[key]; there && labels.IsDiscoverable(key) {
				changes[key] = nil
			}
		}
	}
	if err := r.patchMetadata(ctx, node, changes, annotations); err != nil {
		return err
	}
	if status.GPUReadyCondition(node) == nil {
		return nil
	}
	return r.patchCondition(ctx, node, map[string]string{"type": labels.ConditionGPUReady, "$patch": "delete"})
}

// settling remembers since when a node has had a verdict that is not written yet. Losing it delays
// that write and does nothing else.
type settling struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	since map[string]unwritten
}

type unwritten struct {
	state string
	since time.Time
}

func newSettling(c clock.PassiveClock) *settling {
	return &settling{clock: c, since: map[string]unwritten{}}
}

// left is how long the node must still be in this state before it is written.
func (s *settling) left(node, state string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, there := s.since[node]; !there || have.state != state {
		s.since[node] = unwritten{state, s.clock.Now()}
	}
	return settle - s.clock.Since(s.since[node].since)
}

func (s *settling) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, node)
}
