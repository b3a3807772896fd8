package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/miglog"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// LogReader reads the end of the log of a container, with one request.
type LogReader interface {
	Tail(ctx context.Context, namespace, pod, container string) (string, error)
}

const (
	// maxLogReads is how often the log is read for one failure, until it says why.
	maxLogReads = 3
	// maxLogReaders is how many workers read logs at a time, so that kubelets which do not answer hold up no other nodes.
	maxLogReaders = 2
)

// refreshMIGCause reads from the log of the MIG manager why it could not apply the MIG layout: once for each failure,
// and a few times more if the log cannot be read or does not say it yet. The log of a node whose kubelet does not
// report is read later.
func (s *scope) refreshMIGCause(ctx context.Context, pods assess.Pods) {
	cause := &s.entry.Writes.MIGCause
	if !s.hasFailedLayout() {
		*cause = fleet.MIGCause{}
		return
	}
	pod := pods[s.nodePlan().Partitioner]
	if pod == nil || readiness.Pod(pod, "", s.now).State != readiness.Ready || readiness.Kubelet(s.node).Reason != "" {
		return
	}
	// The MIG manager of another pod applies the layout again.
	of := s.node.Labels[labels.MIGConfig] + " " + string(pod.UID)
	if cause.Of != of {
		*cause = fleet.MIGCause{Of: of, RetryAt: s.now}
	}
	if cause.RetryAt.IsZero() {
		return
	}
	if left := cause.RetryAt.Sub(s.now); left > 0 {
		s.requeueWithin(left)
		return
	}
	s.refreshMIGCauseFrom(ctx, pod)
}

// hasFailedLayout reports whether the MIG manager could not apply the layout that the node requests, and the operator
// does not know why.
func (s *scope) hasFailedLayout() bool {
	planned := s.nodePlan()
	requested, state := s.node.Labels[labels.MIGConfig], s.node.Labels[labels.MIGConfigState]
	return s.Logs != nil && planned.Partitioner != "" && planned.MIGLayout == "" && requested != "" &&
		state == labels.MIGStateFailed
}

// refreshMIGCauseFrom reads the log of this pod, unless as many workers as may do so read others.
func (s *scope) refreshMIGCauseFrom(ctx context.Context, pod *corev1.Pod) {
	select {
	case s.logReaders <- struct{}{}:
		defer func() { <-s.logReaders }()
	default:
		s.requeueWithin(s.Timing.RetryStale)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	cause, manager := &s.entry.Writes.MIGCause, s.nodePlan().Partitioner
	o, _ := s.Catalogue.Find(manager)
	text, err := s.Logs.Tail(ctx, pod.Namespace, pod.Name, o.LogContainer)
	if err != nil {
		log.FromContext(ctx).Error(err, "The log of the MIG manager, which says why a MIG layout failed, cannot be read")
	}
	cause.Words, cause.RetryAt = miglog.Cause(text), time.Time{}
	if cause.Reads++; cause.Words == "" && cause.Reads < maxLogReads {
		wait := time.Duration(cause.Reads*cause.Reads) * s.Timing.RetryLog
		cause.RetryAt = s.now.Add(wait)
		s.requeueWithin(wait)
	}
}
