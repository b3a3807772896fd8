package upgrade

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// carryOut makes the steps of the plan, several nodes at a time. What fails is planned again by a later pass.
func (s *scope) carryOut(ctx context.Context) {
	var steps errgroup.Group
	steps.SetLimit(workers)
	for i := range s.planned.Steps {
		step := &s.planned.Steps[i]
		of := s.observed[step.Node]
		if of == nil || of.hold {
			continue
		}
		steps.Go(func() error {
			s.carryOutStep(ctx, of, step)
			return nil
		})
	}
	_ = steps.Wait()
}

func (s *scope) carryOutStep(ctx context.Context, of *observed, step *upgrade.Step) {
	switch step.Action {
	case upgrade.ActionPatch:
		s.patch(ctx, of, step)
	case upgrade.ActionPull:
		s.pull(ctx, of, step)
	case upgrade.ActionLayout:
		s.patchLayout(ctx, of, step)
	case upgrade.ActionEvict:
		s.evict(ctx, step)
	case upgrade.ActionEndPull, upgrade.ActionDeleteDriver, upgrade.ActionDeleteDependants:
		s.deletePods(ctx, step)
	}
}

// patch makes a transition of a node. The API server rejects it if the Node has changed since it was read, or was
// replaced by another one.
func (s *scope) patch(ctx context.Context, of *observed, step *upgrade.Step) {
	content, err := json.Marshal(patchOf(of.node, step.Patch))
	logger := log.FromContext(ctx).WithValues("node", step.Node)
	if err != nil {
		logger.Error(err, "Encoding a patch failed, which is a bug in the operator")
		return
	}
	s.recordEvent(ctx, of.node, step.Patch)
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: step.Node}}
	done := s.call(ctx, step.Node, "patching the driver upgrade", func(ctx context.Context) error {
		return s.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, content))
	})
	if done {
		s.memory.noteWritten(step.Node, written.ResourceVersion)
		logger.Info("Driver upgrade", "state", step.Patch.State, "why", step.Why)
	}
}

// recordEvent records the Event of a transition. It has the state and the round, so that it is not repeated if the
// operator stops before the patch. That of a text that is replaced has the text instead, and is recorded once while a
// client writes that text again and again: the Events of all Nodes have one limit.
func (s *scope) recordEvent(ctx context.Context, node *corev1.Node, patch *upgrade.Patch) {
	if patch.Event == "" {
		return
	}
	event := events.Event{
		Regarding: nodeReference(node), Type: corev1.EventTypeNormal, Reason: v1.EventDriverUpgrade, Message: patch.Event,
		Transition: "end",
	}
	if patch.Warning {
		event.Type = corev1.EventTypeWarning
	}
	if record := patch.Record; record != nil {
		event.Transition = fmt.Sprintf("%d %s %s", record.Round, record.State, record.Target)
	}
	if patch.Replaces {
		event.Transition = "replaces " + digest.Of(node.Annotations[labels.UpgradeRecord])
		if !s.memory.noteReplaced(node.Name, event.Transition) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	s.Events.Record(ctx, event)
}

// patchOf returns the merge patch of a transition.
func patchOf(node *corev1.Node, patch *upgrade.Patch) map[string]any {
	labelChanges, annotationChanges := map[string]any{}, map[string]any{}
	set(labelChanges, node.Labels, labels.UpgradeState, string(patch.State))
	record := ""
	if patch.Record != nil {
		record = patch.Record.Encode()
	}
	set(annotationChanges, node.Annotations, labels.UpgradeRecord, record)
	if patch.EndRequest {
		set(annotationChanges, node.Annotations, labels.UpgradeRequested, "")
	}
	if patch.RememberCordon {
		set(annotationChanges, node.Annotations, labels.UpgradeInitialCordon, labels.True)
	} else if patch.ForgetCordon {
		set(annotationChanges, node.Annotations, labels.UpgradeInitialCordon, "")
	}
	if patch.ReleasePool {
		for _, key := range []string{
			labels.Pool, labels.PoolKernel, labels.PoolCoreOS, labels.PoolNodePool, labels.DriverAnchor,
		} {
			set(labelChanges, node.Labels, key, "")
		}
	}
	return nodePatch(node, labelChanges, annotationChanges, patch.Unschedulable)
}

// nodePatch returns the merge patch of a Node with these changes, which fails if the Node has changed since it was
// read. unschedulable is left alone if it is nil.
func nodePatch(node *corev1.Node, labelChanges, annotationChanges map[string]any, unschedulable *bool) map[string]any {
	content := map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "labels": labelChanges, "annotations": annotationChanges,
	}}
	if unschedulable != nil {
		content["spec"] = map[string]any{"unschedulable": *unschedulable}
	}
	return content
}

// set adds the change of a key to a value; empty removes the key. There is no change if the key has the value.
func set(changes map[string]any, now map[string]string, key, value string) {
	current, exists := now[key]
	switch {
	case value == "" && exists:
		changes[key] = nil
	case value != "" && current != value:
		changes[key] = value
	}
}

// deletePods deletes pods of the operator. One that is gone, or was replaced by another with its name, is done.
func (s *scope) deletePods(ctx context.Context, step *upgrade.Step) {
	for i := range step.Pods {
		pod := &step.Pods[i]
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod.Name}}
		done := s.call(ctx, step.Node, "deleting pod "+pod.Name, func(ctx context.Context) error {
			return s.Client.Delete(ctx, object, client.Preconditions{UID: &pod.UID})
		})
		if done && step.Action != upgrade.ActionEndPull {
			log.FromContext(ctx).Info("Deleted a pod for a driver upgrade", "node", step.Node, "pod", pod.Name, "why", step.Why)
		}
	}
}
