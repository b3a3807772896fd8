package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
)

// remove takes the next step to remove the stack of a deleted policy from the node: one patch, or none.
func (s *scope) remove(ctx context.Context) error {
	before := s.entry.Removal
	s.clearAssessment()
	s.entry.Removal = before
	if before == nil {
		// Until the node has been read: it does not count as done.
		s.entry.Removal = &fleet.NodeRemoval{Step: removal.Step{Action: removal.Wait, Message: "the node is being read"}}
	}
	node, err := s.removalNode(ctx)
	if err != nil {
		return err
	}
	step := node.Next()
	s.recordRemoval(step, before)
	if !s.beginWrite() {
		return nil
	}
	return s.carryOut(ctx, step)
}

// removalNode reads what the next step depends on.
func (s *scope) removalNode(ctx context.Context) (*removal.Node, error) {
	node := &removal.Node{
		Catalogue: s.Catalogue, Labels: s.node.Labels,
		Written: nodemarks.WasWritten(s.node), Marked: nodemarks.IsMarked(s.node),
		Managed:   nodemarks.HadOperands(s.node),
		Upgrading: hasUpgrade(s.node), Excluded: s.entry.Facts.ExcludedByLabel, Kubelet: kubeletOf(s.node),
		Force: s.basis.Removal.Force, Now: s.now, Patience: s.Timing.RemovalPatience,
	}
	pods, cleaner, err := observe.StackOnNode(ctx, s.Client, s.Namespace, s.node.Name)
	if err != nil {
		return nil, err
	}
	node.Pods, node.Cleaner = pods, cleanerOf(cleaner, s.now)
	if cleaner != nil && !node.Written {
		// It ends after the release.
		node.Pods = append(node.Pods, removal.Pod{Name: cleaner.Name})
	}
	if node.NeedsUsers() {
		reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
		defer cancel()
		node.Users, err = observe.GPUPods(reading, s.Live, s.node.Name, s.Namespace, s.basis.Removal.RuntimeClass)
	}
	return node, err
}

// kubeletOf returns the state of the node's kubelet.
func kubeletOf(node *corev1.Node) removal.Kubelet {
	if condition := readiness.NodeCondition(node, corev1.NodeReady); condition != nil {
		return removal.Kubelet{
			Ready:       condition.Status == corev1.ConditionTrue,
			Unreachable: condition.Status == corev1.ConditionUnknown,
			Since:       condition.LastTransitionTime.Time,
		}
	}
	return removal.Kubelet{Since: node.CreationTimestamp.Time}
}

// cleanerOf returns the state of the pod that cleans up, nil for none.
func cleanerOf(pod *corev1.Pod, now time.Time) removal.Cleaner {
	if pod == nil || pod.DeletionTimestamp != nil {
		return removal.Cleaner{}
	}
	verdict := readiness.Pod(pod, "", now)
	return removal.Cleaner{
		Done: verdict.State == readiness.Ready, Failed: verdict.State == readiness.Failed, Message: verdict.Text(),
	}
}

// recordRemoval enters the step, and schedules the next reconcile if time alone changes it.
func (s *scope) recordRemoval(step removal.Step, before *fleet.NodeRemoval) {
	next := &fleet.NodeRemoval{Step: step}
	if step.Action == removal.Hold {
		next.HeldSince = s.now
		if before != nil && !before.HeldSince.IsZero() {
			next.HeldSince = before.HeldSince
		}
		// The end of the pods is no event here.
		s.requeueWithin(min(max(s.now.Sub(next.HeldSince)/2, s.Timing.RetryHeld), s.Timing.MaxRetryHeld))
	}
	if !step.Until.IsZero() {
		s.requeueWithin(max(step.Until.Sub(s.now), time.Millisecond))
	}
	s.entry.Removal = next
}

// carryOut writes what the step needs.
func (s *scope) carryOut(ctx context.Context, step removal.Step) error {
	switch step.Action {
	case removal.Hold, removal.Wait:
		return s.reportRemoval(ctx, step)
	case removal.TakeOff, removal.Clean:
		if err := s.reportRemoval(ctx, step); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Removing the stack from the node", "step", step.Action)
		return s.patchMetadata(ctx, step.Labels, nil)
	case removal.Release:
		return s.releaseRemoved(ctx, step)
	case removal.Done:
	}
	return nil
}

// reportRemoval writes the condition nvidia.com/GPUReady of a node that has one. A held node keeps its status, as its
// stack still works.
func (s *scope) reportRemoval(ctx context.Context, step removal.Step) error {
	before := assess.GPUReadyCondition(s.node)
	if before == nil {
		return nil
	}
	after := corev1.NodeCondition{
		Type: labels.ConditionGPUReady, Status: corev1.ConditionFalse, Reason: step.Reason(),
		Message: s.node.Name + ": the ClusterPolicy is deleted, and the stack is being removed from the node",
	}
	switch {
	case step.Action == removal.Hold:
		after.Status = before.Status
		after.Message = fmt.Sprintf("%s: the ClusterPolicy is deleted, and the stack stays because its GPUs are in use: %s; "+
			"end these pods, or set spec.removal.force", s.node.Name, step.Message)
	case step.Failed:
		after.Message = fmt.Sprintf("%s: the ClusterPolicy is deleted, and %s", s.node.Name, step.Message)
	}
	if before.Status == after.Status && before.Reason == after.Reason && before.Message == after.Message {
		return nil
	}
	after.LastHeartbeatTime, after.LastTransitionTime = metav1.NewTime(s.now), before.LastTransitionTime
	if before.Status != after.Status {
		after.LastTransitionTime = after.LastHeartbeatTime
	}
	if (step.Action == removal.Hold || step.Failed) && before.Reason != after.Reason {
		s.recordRemovalEvent(ctx, after.Reason, after.Message)
	}
	return s.patchConditions(ctx, assess.Record{}, after)
}

// releaseRemoved removes everything that the operator has written on the node. The labels come last: while they are
// there, the release is repeated.
func (s *scope) releaseRemoved(ctx context.Context, step removal.Step) error {
	if step.Message != "" {
		s.recordRemovalEvent(ctx, v1.ReasonNotCleanedUp, fmt.Sprintf("%s: released without cleaning up its host, as %s: "+
			"the driver's kernel modules, files under /run/nvidia and /usr/local/nvidia, and the configuration of the "+
			"container runtime may be left", s.node.Name, step.Message))
	}
	if err := s.writeTaints(ctx, nodemarks.OwnTaints(), startuptaint.Remove, ""); err != nil {
		return err
	}
	if err := s.deleteConditions(ctx); err != nil {
		return err
	}
	changes := nodemarks.Released(s.Catalogue, s.node, "")
	changes.DropUpgrade(s.node)
	return s.patchMetadata(ctx, changes.Labels, changes.Annotations)
}

// recordRemovalEvent records a warning on the node, once for each policy.
func (s *scope) recordRemovalEvent(ctx context.Context, reason, message string) {
	s.Events.Record(ctx, events.Event{
		Regarding: s.regarding(),
		Type:      corev1.EventTypeWarning, Reason: reason, Message: message,
		Transition: "removal of policy " + string(s.basis.Policy.UID),
	})
}
