package assess

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// checkDeadlines turns what has been progressing for longer than the deadline of the spec into a failure: the node if
// it is not ready, otherwise the auxiliary operands. The time counts from the previous assessment or
// from the pods, whichever is later.
func (a *Assessment) checkDeadlines(in Input) {
	since := in.Now
	if in.Previous.Ready == a.Ready() && !in.Previous.Since.IsZero() {
		since = in.Previous.Since
	}
	if a.Ready() {
		for _, onNode := range in.NodePlan.Auxiliary {
			if verdict, expected := a.Operands[onNode.Operand]; expected && onNode.Expectation == plan.Expected {
				from := times.Later(since, unreadySince(in.Pods[onNode.Operand]))
				a.Operands[onNode.Operand] = readiness.ApplyDeadline(in.NodePlan.Spec.Deadline(""), verdict, from, in.Now)
			}
		}
		return
	}
	if a.Reason == v1.ReasonOperandPaused {
		return // A paused operand has no deadline.
	}
	for _, onNode := range in.NodePlan.Essential {
		if pod := in.Pods[onNode.Operand]; pod != nil && onNode.Stage.Before(a.Stage) {
			since = times.Later(since, readiness.ReadySince(pod))
		}
	}
	a.Verdict = readiness.ApplyDeadline(in.NodePlan.Spec.Deadline(a.Stage), a.Verdict, since, in.Now)
	if name := operand.Name(a.Operand); name != "" {
		a.Operands[name] = a.Verdict
	}
}

// unreadySince returns since when a pod has not been ready; zero for nil.
func unreadySince(pod *corev1.Pod) time.Time {
	if pod == nil {
		return time.Time{}
	}
	return readiness.UnreadySince(pod)
}
