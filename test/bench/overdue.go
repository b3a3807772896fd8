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
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// overdueNode is the node whose device plugin never becomes ready.
	overdueNode = "overdue"
	// overdueDeadline is the deadline of its stage.
	overdueDeadline = 10 * time.Second
	// overdueCause is part of the reported message.
	overdueCause = "not ready after 10s: container nvidia-device-plugin is not ready"
	toolkitApp   = "nvidia-container-toolkit-daemonset"
)

// overdue measures how soon after the deadline a node with an unready device plugin is reported: in the policy's
// status, the node's condition and an Event.
func overdue(ctx context.Context, e *env) (outcome, error) {
	if err := e.setDeadline(ctx, overdueDeadline.String()); err != nil {
		return outcome{}, err
	}
	if err := e.settle(ctx); err != nil {
		return outcome{}, err
	}
	e.sim.Break(plugin, overdueNode, simulator.NeverReady)
	defer e.sim.Heal(plugin, overdueNode)
	var reported time.Time
	calls, err := e.during(func() (err error) {
		if _, err := e.sim.AddNode(ctx, simulator.NodeSpec{Name: overdueNode}); err != nil {
			return err
		}
		if reported, err = e.awaitOverdue(ctx); err != nil {
			return err
		}
		return e.settle(ctx)
	})
	if err != nil {
		return outcome{}, err
	}
	out := outcome{Tallies: []tally{tallyOf("a node joins and misses its deadline", calls)}}
	if out.Figures, err = e.judgeOverdue(ctx, reported); err != nil {
		return outcome{}, err
	}
	if err := e.removeNodes(ctx, []string{overdueNode}); err != nil {
		return outcome{}, err
	}
	if err := e.setDeadline(ctx, ""); err != nil {
		return outcome{}, err
	}
	return out, e.settle(ctx)
}

// awaitOverdue returns when node and policy have reported the cause.
func (e *env) awaitOverdue(ctx context.Context) (reported time.Time, err error) {
	if err := e.awaitCondition(ctx); err != nil {
		return time.Time{}, err
	}
	err = e.awaitPolicy(ctx, "the policy names the broken node", func(st v1.ClusterPolicyStatus) bool {
		return int(st.NodeSummary.Degraded) == 1 && int(st.NodeSummary.Ready) == e.size &&
			st.Nodes[0].Name == overdueNode && strings.Contains(st.Nodes[0].Message, overdueCause)
	})
	return time.Now(), err
}

// judgeOverdue compares the time of the report with the deadline, which starts at the end of the previous stage.
func (e *env) judgeOverdue(ctx context.Context, reported time.Time) ([]figure, error) {
	toolkit, err := e.podOn(ctx, toolkitApp, overdueNode)
	if err != nil || toolkit == nil {
		return nil, errors.Join(err, errors.New("the toolkit of the broken node must be ready"))
	}
	events, err := e.eventsOf(ctx, overdueNode)
	if err != nil {
		return nil, err
	}
	late := reported.Sub(readySince(toolkit).Add(overdueDeadline)).Seconds()
	return []figure{
		atMost(fmt.Sprintf("from the deadline of a broken node until status and condition report node and cause, "+
			"with the other %d ready", e.size), late, overdueSeconds, seconds),
		{
			Name: other, What: "Events on that node, with the cause", Goal: "1", Measured: fmt.Sprint(len(events)),
			Met: len(events) == 1 && strings.Contains(events[0].Message, overdueCause),
		},
	}, nil
}

// setDeadline sets the deadline of the device plugin; empty is the default.
func (e *env) setDeadline(ctx context.Context, deadline string) error {
	object, err := e.livePolicy(ctx)
	if err != nil {
		return err
	}
	return e.patch(ctx, object,
		map[string]any{"spec": map[string]any{"deadlines": map[string]any{"devicePlugin": deadline}}})
}

// awaitCondition waits until the node's condition reports that it is overdue.
func (e *env) awaitCondition(ctx context.Context) error {
	return e.await(ctx, "the condition of the broken node reports the cause", pollPeriod,
		func(ctx context.Context) (bool, string, error) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: overdueNode}}
			if err := e.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return false, "", fmt.Errorf("read node %s: %w", node.Name, err)
			}
			condition := assess.GPUReadyCondition(node)
			if condition == nil {
				return false, "no condition", nil
			}
			return strings.Contains(condition.Message, overdueCause), condition.Message, nil
		})
}

// eventsOf returns the operator's Events about a node.
func (e *env) eventsOf(ctx context.Context, node string) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := e.client.List(ctx, list,
		client.MatchingFields{"involvedObject.kind": "Node", "involvedObject.name": node, "source": account})
	if err != nil {
		return nil, fmt.Errorf("list the Events of node %s: %w", node, err)
	}
	return list.Items, nil
}

// readySince returns when a pod became ready; zero if it is not.
func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
