package assess

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// missing returns why the node has no pod of an operand: it waits for another operand, or see Stack.missing.
func (in Input) missing(onNode plan.OperandOnNode) readiness.Verdict {
	if first := in.Pods[onNode.Injector]; onNode.Injector != "" && in.Node.Labels[onNode.Operand.DeployLabel()] == "" &&
		(first == nil || readiness.Pod(first, "", in.Now).State != readiness.Ready) {
		return pending(fmt.Sprintf("waiting for %s", onNode.Injector))
	}
	return in.Stack.missing(onNode.Operand, in.Node)
}

// missing returns why the node has no pod of an operand that it needs: no DaemonSet, a taint, a rejected pod, or that
// the pod is not created yet.
func (s Stack) missing(name operand.Name, node *corev1.Node) readiness.Verdict {
	ds, exists := s.daemonSetFor(name, node)
	switch {
	case !exists:
		return pending(fmt.Sprintf("%s has no pod on the node yet", name))
	case ds == nil:
		return pending(fmt.Sprintf("no DaemonSet of %s selects the node yet", name))
	}
	verdict := readiness.MissingPod(ds, node)
	if failure, rejected := s.CreateFailures[ds.Name]; rejected && verdict.Reason == v1.ReasonPodMissing {
		return readiness.Verdict{
			State: readiness.Failed, Reason: failure.Reason,
			Message: fmt.Sprintf("DaemonSet %s cannot create its pod", ds.Name), Detail: failure.Message,
		}
	}
	return verdict
}

func pending(message string) readiness.Verdict {
	return readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonPodMissing, Message: message}
}

// daemonSetFor returns the DaemonSet of the operand that selects the node, nil for none, and whether the operand has
// any DaemonSet.
func (s Stack) daemonSetFor(name operand.Name, node *corev1.Node) (found *appsv1.DaemonSet, exists bool) {
	for _, ds := range s.DaemonSets {
		if ds.Labels[labels.Operand] != string(name) || ds.DeletionTimestamp != nil {
			continue
		}
		exists = true
		// If several select the node, the first by name keeps the message stable.
		if readiness.Selects(ds, node) && (found == nil || ds.Name < found.Name) {
			found = ds
		}
	}
	return found, exists
}
