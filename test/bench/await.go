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
	"github.com/clusterpolicy/gpu-operator/internal/assess"
)

const (
	// lookPeriod is how often a wait looks, and so how exact its time is.
	lookPeriod = 100 * time.Millisecond
	// listPeriod is the same where all nodes are listed, which costs the API server something.
	listPeriod = time.Second
	// settledAfter is how long nothing has to be written before all counts as told: counters of the status are
	// written every 10 s.
	settledAfter = 12 * time.Second
)

// await looks until the check holds. Its state is told if it never does.
func (b *bed) await(ctx context.Context, what string, every time.Duration, check func(context.Context) (holds bool, state string, err error)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, every, b.timeout, true, func(ctx context.Context) (bool, error) {
		if b.operator != nil {
			select {
			case <-b.operator.process.Done():
				return false, fmt.Errorf("the operator has ended, see its log %s: %w", b.operator.process.LogFile, b.operator.process.Wait())
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

// awaitPolicy looks at the policy until the check holds.
func (b *bed) awaitPolicy(ctx context.Context, what string, check func(v1.ClusterPolicyStatus) bool) error {
	return b.await(ctx, what, lookPeriod, func(ctx context.Context) (bool, string, error) {
		object, err := b.livePolicy(ctx)
		if err != nil {
			return false, "", err
		}
		st := object.Status
		return st.NodeSummary != nil && st.ObservedGeneration == object.Generation && check(st), describe(st), nil
	})
}

// awaitReady waits until the policy says that so many nodes are ready, and no other is there. What is not needed to use GPUs
// counts, too, as it does with NVIDIA's operator, whose status does not tell it apart.
func (b *bed) awaitReady(ctx context.Context, nodes int) error {
	return b.awaitPolicy(ctx, fmt.Sprintf("%d nodes are ready", nodes), func(st v1.ClusterPolicyStatus) bool {
		return st.State == v1.StateReady && !meta.IsStatusConditionFalse(st.Conditions, v1.ConditionAuxiliaryReady) &&
			int(st.NodeSummary.Total) == nodes && int(st.NodeSummary.Ready) == nodes
	})
}

// awaitDegraded waits until the policy says that so many nodes are degraded.
func (b *bed) awaitDegraded(ctx context.Context, nodes int) error {
	return b.awaitPolicy(ctx, fmt.Sprintf("%d nodes are degraded", nodes), func(st v1.ClusterPolicyStatus) bool {
		return int(st.NodeSummary.Degraded) == nodes
	})
}

// awaitConditions waits until so many nodes say of themselves that they are ready.
func (b *bed) awaitConditions(ctx context.Context, nodes int) error {
	return b.await(ctx, "the conditions of all nodes are True", listPeriod, func(ctx context.Context) (bool, string, error) {
		list := &corev1.NodeList{}
		if err := b.client.List(ctx, list); err != nil {
			return false, "", err
		}
		ready := 0
		for i := range list.Items {
			if condition := assess.GPUReadyCondition(&list.Items[i]); condition != nil && condition.Status == corev1.ConditionTrue {
				ready++
			}
		}
		return ready == nodes, fmt.Sprintf("%d of %d", ready, nodes), nil
	})
}

// awaitDaemonSets waits until so many DaemonSets or more are there and each is ready on so many nodes.
func (b *bed) awaitDaemonSets(ctx context.Context, least, nodes int) error {
	err := b.await(ctx, "all DaemonSets are ready", lookPeriod, func(ctx context.Context) (bool, string, error) {
		list := &appsv1.DaemonSetList{}
		if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
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
		return fmt.Errorf("%w; %s", err, b.unready(ctx))
	}
	return nil
}

// unready tells of some pods that are not ready.
func (b *bed) unready(ctx context.Context) string {
	const most = 3
	list := &corev1.PodList{}
	if err := b.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "the pods cannot be listed: " + err.Error()
	}
	texts := []string{fmt.Sprintf("%d pods are there", len(list.Items))}
	for i := range list.Items {
		pod := &list.Items[i]
		if readySince(pod).IsZero() && len(texts) <= most {
			texts = append(texts, fmt.Sprintf("%s on %q, version %s, deleted %v: %s", pod.Name, pod.Spec.NodeName, pod.ResourceVersion, pod.DeletionTimestamp, pod.Status.String()))
		}
	}
	return strings.Join(texts, "; ")
}

// readyAndSettled waits until so many nodes are ready and all has been told.
func (b *bed) readyAndSettled(ctx context.Context, nodes int) error {
	if err := b.awaitReady(ctx, nodes); err != nil {
		return err
	}
	return b.settle(ctx)
}

// settle waits until the operator has written nothing for a while.
func (b *bed) settle(ctx context.Context) error {
	quietSince := time.Now()
	mark, err := b.cluster.Mark()
	if err != nil {
		return err
	}
	return b.await(ctx, "the operator writes nothing", time.Second, func(context.Context) (bool, string, error) {
		next, err := b.cluster.Mark()
		if err != nil {
			return false, "", err
		}
		calls, err := b.callsSince(mark)
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
