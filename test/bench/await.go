package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

const (
	// pollPeriod is how often a wait polls, which is also the precision of its time.
	pollPeriod = 100 * time.Millisecond
	// listPeriod is the same for waits that list all nodes, which is expensive for the API server.
	listPeriod = time.Second
	// settledAfter is how long the operator must write nothing to be at rest: the counters of the status are written
	// every 10 s.
	settledAfter = 12 * time.Second
)

// await polls until the check succeeds. On a timeout the error has the check's last state.
func (e *env) await(
	ctx context.Context, what string, every time.Duration,
	check func(context.Context) (holds bool, state string, err error),
) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, every, e.timeout, true, func(ctx context.Context) (bool, error) {
		if e.operator != nil {
			select {
			case <-e.operator.process.Done():
				return false, fmt.Errorf("the operator has exited, see its log %s: %w", e.operator.process.LogFile,
					e.operator.process.Wait())
			default:
			}
		}
		holds, state, err := check(ctx)
		if err == nil {
			last = state
		}
		return holds, err
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w; last seen: %s", what, err, last)
	}
	return nil
}

// awaitPolicy polls the policy until the check succeeds.
func (e *env) awaitPolicy(ctx context.Context, what string, check func(v1.ClusterPolicyStatus) bool) error {
	return e.await(ctx, what, pollPeriod, func(ctx context.Context) (bool, string, error) {
		object, err := e.livePolicy(ctx)
		if err != nil {
			return false, "", err
		}
		st := object.Status
		return st.NodeSummary != nil && st.ObservedGeneration == object.Generation && check(st), describe(st), nil
	})
}

// awaitReady waits until the policy reports this number of nodes, all of them ready. Operands that are not needed to
// use GPUs count too, as with NVIDIA's operator, whose status does not distinguish them.
func (e *env) awaitReady(ctx context.Context, nodes int) error {
	return e.awaitPolicy(ctx, fmt.Sprintf("%d nodes are ready", nodes), func(st v1.ClusterPolicyStatus) bool {
		return st.State == v1.StateReady && !meta.IsStatusConditionFalse(st.Conditions, v1.ConditionAuxiliaryReady) &&
			int(st.NodeSummary.Total) == nodes && int(st.NodeSummary.Ready) == nodes
	})
}

// awaitDegraded waits until the policy reports this number of degraded nodes.
func (e *env) awaitDegraded(ctx context.Context, nodes int) error {
	return e.awaitPolicy(ctx, fmt.Sprintf("%d nodes are degraded", nodes), func(st v1.ClusterPolicyStatus) bool {
		return int(st.NodeSummary.Degraded) == nodes
	})
}

// awaitConditions waits until this number of nodes has a condition that is True.
func (e *env) awaitConditions(ctx context.Context, nodes int) error {
	return e.await(ctx, "the conditions of all nodes are True", listPeriod,
		func(ctx context.Context) (bool, string, error) {
			list := &corev1.NodeList{}
			if err := e.client.List(ctx, list); err != nil {
				return false, "", err
			}
			ready := 0
			for i := range list.Items {
				if condition := assess.GPUReadyCondition(&list.Items[i]); condition != nil &&
					condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
			return ready == nodes, fmt.Sprintf("%d of %d", ready, nodes), nil
		})
}

// awaitDaemonSets waits until at least this number of DaemonSets exists and each is ready on this number of nodes.
func (e *env) awaitDaemonSets(ctx context.Context, least, nodes int) error {
	err := e.await(ctx, "all DaemonSets are ready", pollPeriod, func(ctx context.Context) (bool, string, error) {
		list := &appsv1.DaemonSetList{}
		if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, "", err
		}
		ready, state := 0, ""
		for i := range list.Items {
			count := list.Items[i].Status.NumberReady
			state += fmt.Sprintf("%s %d/%d ", list.Items[i].Name, count, nodes)
			if int(count) == nodes {
				ready++
			}
		}
		return len(list.Items) >= least && ready == len(list.Items), state, nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, e.unready(ctx))
	}
	return nil
}

// unready describes some of the pods that are not ready.
func (e *env) unready(ctx context.Context) string {
	const most = 3
	list := &corev1.PodList{}
	if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "the pods cannot be listed: " + err.Error()
	}
	texts := []string{fmt.Sprintf("%d pods exist", len(list.Items))}
	for i := range list.Items {
		pod := &list.Items[i]
		if readySince(pod).IsZero() && len(texts) <= most {
			texts = append(texts, fmt.Sprintf("%s on %q, version %s, deleted %v: %s", pod.Name, pod.Spec.NodeName,
				pod.ResourceVersion, pod.DeletionTimestamp, pod.Status.String()))
		}
	}
	return strings.Join(texts, "; ")
}

// readyAndSettled waits until this number of nodes is ready and the operator is at rest.
func (e *env) readyAndSettled(ctx context.Context, nodes int) error {
	if err := e.awaitReady(ctx, nodes); err != nil {
		return err
	}
	return e.settle(ctx)
}

// settle waits until the operator is at rest: it has written nothing for settledAfter.
func (e *env) settle(ctx context.Context) error {
	quietSince := time.Now()
	mark, err := e.cluster.Mark()
	if err != nil {
		return err
	}
	return e.await(ctx, "the operator writes nothing", time.Second, func(context.Context) (bool, string, error) {
		next, err := e.cluster.Mark()
		if err != nil {
			return false, "", err
		}
		calls, err := e.callsSince(mark)
		if err != nil {
			return false, "", err
		}
		writes := calls.Writes()
		if len(writes) > 0 {
			quietSince = writes[len(writes)-1].Time
		}
		mark = next
		return time.Since(quietSince) >= settledAfter, writes.String(), nil
	})
}

func describe(st v1.ClusterPolicyStatus) string {
	text := string(st.State)
	if st.NodeSummary != nil {
		text += fmt.Sprintf(" %s, degraded %d", st.NodeSummary.ReadyOfTotal, st.NodeSummary.Degraded)
	}
	for _, condition := range st.Conditions {
		if condition.Type == v1.ConditionReady {
			text += ", " + condition.Reason + ": " + condition.Message
		}
	}
	return text
}
