package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

const (
	// maxNamed is the number of refused pods that a message names.
	maxNamed = 3
	// maxCleaned is the number of refused pods that are deleted in one reconcile.
	maxCleaned = 20
	// systemNamespace is that of the cluster's own pods, of which the operator deletes none.
	systemNamespace = "kube-system"
)

// noticeBoot notes that the node has booted since the previous assessment or, after a restart of the operator, since
// the record on the Node was written.
func (s *scope) noticeBoot() {
	boot, now := &s.entry.Boot, s.node.Status.NodeInfo.BootID
	if now == "" || now == boot.ID {
		return
	}
	first := boot.ID == ""
	switch {
	case !first:
		*boot = fleet.Boot{ID: now, After: s.entry.Latest.At, LookAt: s.now}
	case s.hasBooted() || s.showsRefusedPods():
		*boot = fleet.Boot{ID: now, After: s.latestStart(), LookAt: s.now}
	default:
		boot.ID = now
	}
}

// showsRefusedPods reports whether the condition reports refused pods, as before a restart of the operator.
func (s *scope) showsRefusedPods() bool {
	condition := assess.GPUReadyCondition(s.node)
	return condition != nil && condition.Reason == v1.ReasonGPUPodsRefused
}

// latestStart returns a time before the kubelet of the node last started. What it refused before is not known to be of
// this boot.
func (s *scope) latestStart() time.Time {
	if condition := readiness.NodeCondition(s.node, corev1.NodeReady); condition != nil {
		return condition.LastTransitionTime.Add(-s.Timing.KubeletStart)
	}
	return s.now
}

// handleRefusedPods reads the pods that the kubelet refused when the node booted, once the GPUs can be used, so that it
// refuses no more of them, and evicts those of controllers. It reports whether it has read them. While some are left it
// reads them again at times: their end causes no event.
func (s *scope) handleRefusedPods(ctx context.Context) bool {
	boot := &s.entry.Boot
	if boot.LookAt.IsZero() || !s.entry.Latest.Usable || s.basis.Paused() {
		return false
	}
	if left := boot.LookAt.Sub(s.now); left > 0 {
		s.requeueWithin(left)
		return false
	}
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	pods, err := observe.RefusedPods(reading, s.Live, s.node.Name, s.Namespace, boot.After)
	if err != nil {
		log.FromContext(ctx).Error(err, "Failed to look for pods that the kubelet refused after the boot; retrying")
		s.lookAgain(s.Timing.LastRetry)
		return false
	}
	left, deleted := s.cleanRefusedPods(ctx, pods)
	s.recordRefusal(ctx, pods, deleted)
	boot.Refused, boot.LookAt = "", time.Time{}
	if len(left) > 0 {
		boot.Refused = fmt.Sprintf("its kubelet refused %s after a boot (UnexpectedAdmissionError): delete them",
			describePods(left))
		s.lookAgain(s.Timing.RetryBusy)
		if deleted == maxCleaned {
			s.lookAgain(s.Timing.RetryStale)
		}
	}
	return true
}

// lookAgain makes the next look for refused pods due after this delay.
func (s *scope) lookAgain(delay time.Duration) {
	s.entry.Boot.LookAt = s.now.Add(delay)
	s.requeueWithin(delay)
}

// cleanRefusedPods deletes the pods that a controller owns, if the spec requires it. It returns the others, and the
// number of those that it has deleted.
func (s *scope) cleanRefusedPods(
	ctx context.Context, pods []observe.RefusedPod,
) (left []observe.RefusedPod, deleted int) {
	if !*s.basis.Decisions.Input.Spec.NodeStartup.CleanFailedPods {
		return pods, 0
	}
	for _, pod := range pods {
		if !pod.Owned || pod.Namespace == systemNamespace || deleted == maxCleaned {
			left = append(left, pod)
			continue
		}
		if err := s.deleteRefused(ctx, pod); err != nil {
			log.FromContext(ctx).Error(err, "Failed to delete a pod that the kubelet refused after a boot", "pod", pod.String())
			left = append(left, pod)
			continue
		}
		deleted++
	}
	return left, deleted
}

// deleteRefused deletes a pod that has ended, unless it has changed since it was read. The eviction API does so without
// regard to disruption budgets.
func (s *scope) deleteRefused(ctx context.Context, pod observe.RefusedPod) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	meta := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}
	err := s.Client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: meta}, &policyv1.Eviction{
		ObjectMeta: meta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: &pod.UID, ResourceVersion: &pod.ResourceVersion,
		}},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// recordRefusal records one Event for each boot with refused pods, and one if some were deleted later.
func (s *scope) recordRefusal(ctx context.Context, pods []observe.RefusedPod, deleted int) {
	isKnown := s.entry.Boot.Refused != "" || s.showsRefusedPods()
	if len(pods) == 0 || isKnown && deleted == 0 {
		return
	}
	message := fmt.Sprintf("%s: the kubelet refused %s after a boot (UnexpectedAdmissionError)",
		s.node.Name, describePods(pods))
	if deleted > 0 {
		message += fmt.Sprintf("; deleted %d of them, which controllers own", deleted)
	}
	s.Events.Record(ctx, events.Event{
		Regarding: s.regarding(),
		Type:      corev1.EventTypeWarning, Reason: v1.ReasonGPUPodsRefused, Message: message,
		Transition: fmt.Sprintf("boot %s, deleted: %t", s.node.Status.NodeInfo.BootID, deleted > 0),
	})
}

// describePods returns the number of pods, and the names of the first.
func describePods(pods []observe.RefusedPod) string {
	var names []string
	for _, pod := range pods[:min(len(pods), maxNamed)] {
		names = append(names, pod.String())
	}
	more := ""
	if len(pods) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(pods)-maxNamed)
	}
	noun := "pods"
	if len(pods) == 1 {
		noun = "pod"
	}
	return fmt.Sprintf("%d %s with GPUs: %s%s", len(pods), noun, strings.Join(names, ", "), more)
}
