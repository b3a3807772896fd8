package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// loss is what comes of discovery labels that are away.
type missingDiscovery struct {
	// gone: the node is to be given up.
	release bool
	// stayedAway is that of the facts.
	overdue bool
	// notes are the changes of the annotations that tell since when.
	annotations map[string]*string
	// wait is after how long to look again; 0 is never.
	recheckAfter time.Duration
}

// discovery watches over a node that was found to have GPUs and is no longer, as after a restart of node
// discovery. It is given up once it has had no GPU in its labels for the grace period, and no pod uses any.
// One that has lost all its discovery labels is never given up: that is discovery's failure, not the node's.
// Nor is one whose kubelet still advertises GPUs: the labels are wrong then.
// missing: labels are away.
func (s *scope) checkDiscovery(ctx context.Context, spec effective.Spec, missing bool) missingDiscovery {
	node, facts, now, grace := s.node, s.entry.Facts, s.now, spec.NodeDiscovery.GracePeriod.Duration
	found := missingDiscovery{annotations: map[string]*string{}}
	away := trackSince(found.annotations, node, labels.DiscoveryMissingSince, missing, now)
	if missing && facts.MissingLabels() == "" {
		// A nodeSelector asks for one.
		found.recheckAfter = max(0, grace-now.Sub(away))
		found.overdue = found.recheckAfter == 0
	}
	lost := missing && !facts.HasGPU && facts.Discovered && readiness.Allocatable(node).State != readiness.Ready
	since := trackSince(found.annotations, node, labels.DiscoveryLostSince, lost, now)
	if !lost {
		return found
	}
	if left := grace - now.Sub(since); left > 0 {
		found.recheckAfter = left
		return found
	}
	reading, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	user, err := observe.GPUPod(reading, s.Live, node.Name, s.Namespace, spec.Operator.RuntimeClass)
	if err != nil || user != "" {
		found.recheckAfter = min(grace, s.Timing.RetryBusy)
		log.FromContext(ctx).Info("Keeping a node that has no GPU any more, as pods may use its GPUs", "pod", user, "error", err)
		return found
	}
	log.FromContext(ctx).Info("Giving up a node that has no GPU any more", "since", since)
	found.release = true
	return found
}

// trackSince keeps the annotation that tells since when something has been so, and returns that time. A time
// that is absent, or not ours to believe, is now: it may delay what follows from it, and never hasten it.
func trackSince(changes map[string]*string, node *corev1.Node, annotation string, is bool, now time.Time) time.Time {
	text, noted := node.Annotations[annotation]
	if !is {
		if noted {
			changes[annotation] = nil
		}
		return time.Time{}
	}
	if since, err := time.Parse(time.RFC3339, text); err == nil && !since.After(now) {
		return since
	}
	text = now.UTC().Format(time.RFC3339)
	changes[annotation] = &text
	return now
}
