package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// missingDiscovery is the result of checkDiscovery.
type missingDiscovery struct {
	// release: the node has lost its GPUs and is to be released.
	release bool
	// graceOver: a label of a nodeSelector has been missing for the grace period.
	graceOver bool
	// annotations are changes of the annotations that record since when labels are missing.
	annotations map[string]*string
	// recheckAfter is when to check again; 0 means never.
	recheckAfter time.Duration
	// users are pods that use GPUs of a node that has lost them, and unread is why they are not known: either keeps it.
	users  []string
	unread error
}

// checkDiscovery handles a managed node whose discovery labels are missing, as after a restart of node discovery. The
// node is released once its labels have shown no GPU for the grace period and no pod uses one. A node without any
// discovery labels is never released: discovery has failed, not the node. Nor is one whose kubelet still advertises
// GPUs: the labels are wrong.
func (s *scope) checkDiscovery(ctx context.Context, spec effective.Spec, missing bool) missingDiscovery {
	node, facts, now, grace := s.node, s.entry.Facts, s.now, spec.NodeDiscovery.GracePeriod.Duration
	found := missingDiscovery{annotations: map[string]*string{}}
	missingSince := trackSince(found.annotations, node, labels.DiscoveryMissingSince, missing, now)
	if missing && facts.DescribeMissingLabels() == "" {
		// A nodeSelector of the spec requires the label.
		found.recheckAfter = max(0, grace-now.Sub(missingSince))
		found.graceOver = found.recheckAfter == 0
	}
	lost := missing && !facts.HasGPU && facts.HasDiscoveryLabels && readiness.Allocatable(node).State != readiness.Ready
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
	pods, err := observe.GPUPods(reading, s.Live, node.Name, s.Namespace, spec.Operator.RuntimeClass)
	if err != nil || len(pods) > 0 {
		found.recheckAfter, found.users, found.unread = min(grace, s.Timing.RetryBusy), pods, err
		return found
	}
	found.release = true
	return found
}

// logKept logs why the operands of a node without a GPU in its labels are kept, if they are: the pods that use one, or
// the error of reading the pods.
func (s *scope) logKept(ctx context.Context, found missingDiscovery) {
	switch {
	case found.unread != nil:
		log.FromContext(ctx).Error(found.unread, "Keeping the operands of a node whose discovery labels show no GPU: "+
			"its pods cannot be read, and may use GPUs")
	case len(found.users) > 0:
		log.FromContext(ctx).Info("Keeping the operands of a node whose discovery labels show no GPU: a pod uses GPUs",
			"pod", found.users[0])
	}
}

// trackSince maintains the annotation that records since when something is the case, and returns that time. A missing
// or invalid time counts as now: it may delay what follows, never hasten it.
func trackSince(changes map[string]*string, node *corev1.Node, annotation string, is bool, now time.Time) time.Time {
	text, recorded := node.Annotations[annotation]
	if !is {
		if recorded {
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
