package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// overdueNode is the node whose device plugin never gets ready.
	overdueNode = "overdue"
	// overdueDeadline is how long it may take.
	overdueDeadline = 10 * time.Second
	// overdueCause is part of what is told.
	overdueCause = "not ready after 10s: container nvidia-device-plugin is not ready"
	toolkitApp   = "nvidia-container-toolkit-daemonset"
)

// overdue measures how soon a node is told to be broken whose device plugin is not ready when its deadline has passed:
// in the policy's status, the node's condition and an Event.
func overdue(ctx context.Context, b *bed) (outcome, error) {
	if err := b.setDeadline(ctx, overdueDeadline.String()); err != nil {
		return outcome{}, err
	}
	if err := b.settle(ctx); err != nil {
		return outcome{}, err
	}
	b.sim.Break(plugin, overdueNode, simulator.NeverReady)
	defer b.sim.Heal(plugin, overdueNode)
	var told time.Time
	calls, err := b.during(func() (err error) {
		if _, err := b.sim.AddNode(ctx, simulator.NodeSpec{Name: overdueNode}); err != nil {
			return err
		}
		if told, err = b.awaitOverdue(ctx); err != nil {
			return err
		}
		return b.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	out := outcome{Tallies: []tally{tallyOf("a node joins that is overdue", calls)}}
	if out.Figures, err = b.judgeOverdue(ctx, told); err != nil {
		return outcome{}, err
	}
	if err := b.removeNodes(ctx, []string{overdueNode}); err != nil {
		return outcome{}, err
	}
	if err := b.setDeadline(ctx, ""); err != nil {
		return outcome{}, err
	}
	return out, b.settle(ctx)
}

// awaitOverdue returns when node and policy have told the cause.
func (b *bed) awaitOverdue(ctx context.Context) (told time.Time, err error) {
	if err := b.awaitCondition(ctx); err != nil {
		return time.Time{}, err
	}
	err = b.awaitPolicy(ctx, "the policy names the broken node", func(st v1.ClusterPolicyStatus) bool {
		return int(st.NodeSummary.Degraded) == 1 && int(st.NodeSummary.Ready) == b.size &&
			st.Nodes[0].Name == overdueNode && strings.Contains(st.Nodes[0].Message, overdueCause)
	})
	return time.Now(), err
}

// judgeOverdue compares when it was told with the deadline, which counts from the stage before.
func (b *bed) judgeOverdue(ctx context.Context, told time.Time) ([]figure, error) {
	toolkit, err := b.podOn(ctx, toolkitApp, overdueNode)
	if err != nil || toolkit == nil {
		return nil, errors.Join(err, errors.New("the toolkit of the broken node must be ready"))
	}
	events, err := b.eventsOf(ctx, overdueNode)
	if err != nil {
		return nil, err
	}
	late := told.Sub(readySince(toolkit).Add(overdueDeadline)).Seconds()
	return []figure{
		atMost(other, fmt.Sprintf("from the deadline of a broken node until status and condition name node and cause, the other %d ready", b.size), late, overdueSeconds, seconds),
		{
			Name: other, What: "Events on that node, with the cause", Goal: "1", Measured: fmt.Sprint(len(events)),
			Met: len(events) == 1 && strings.Contains(events[0].Message, overdueCause),
		},
	}, nil
}

// setDeadline says how long the device plugin may take; empty is the default.
func (b *bed) setDeadline(ctx context.Context, deadline string) error {
	object, err := b.livePolicy(ctx)
	if err != nil {
		return err
	}
	return b.patch(ctx, object, map[string]any{"spec": map[string]any{"deadlines": map[string]any{"devicePlugin": deadline}}})
}

// awaitCondition waits until the node tells that it is overdue.
func (b *bed) awaitCondition(ctx context.Context) error {
	return b.await(ctx, "the broken node says so", lookPeriod, func(ctx context.Context) (bool, string, error) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: overdueNode}}
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return false, "", fmt.Errorf("read node %s: %w", node.Name, err)
		}
		condition := assess.GPUReadyCondition(node)
		if condition == nil {
			return false, "no condition", nil
		}
		return strings.Contains(condition.Message, overdueCause), condition.Message, nil
	})
}

// eventsOf are the operator's Events about a node.
func (b *bed) eventsOf(ctx context.Context, node string) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := b.client.List(ctx, list, client.MatchingFields{"involvedObject.kind": "Node", "involvedObject.name": node, "source": account})
	if err != nil {
		return nil, fmt.Errorf("list the Events of node %s: %w", node, err)
	}
	return list.Items, nil
}

// readySince is when a pod got ready; zero if it is not.
func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
