package removal_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/removal"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

const (
	deploy   = "nvidia.com/gpu.deploy."
	anchor   = "clusterpolicy.github.io/"
	patience = 5 * time.Minute
)

var now = time.Unix(1_000_000, 0).UTC()

// stack are the operands that run on the node of the tests.
var stack = []operand.Name{"container-toolkit", "dcgm-exporter", "device-plugin", "driver", "operator-validator"}

// runningNode is a node with the stack on it.
func runningNode(t *testing.T) *removal.Node {
	t.Helper()
	catalogue, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	node := &removal.Node{
		Catalogue: catalogue, Written: true, Marked: true, Managed: true, Kubelet: removal.Kubelet{Ready: true},
		Now: now, Patience: patience,
		Labels: map[string]string{
			"nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64", "nvidia.com/gpu.present": "true", deploy + "client": "true",
			anchor + "driver": "ubuntu24.04-amd64", anchor + "container-toolkit": "containerd",
		},
	}
	for _, name := range stack {
		node.Labels[deploy+string(name)] = "true"
		node.Pods = append(node.Pods, removal.Pod{Name: string(name) + "-x", Operand: name})
	}
	return node
}

// emptyNode is the same node without operands and their pods.
func emptyNode(t *testing.T) *removal.Node {
	t.Helper()
	node := runningNode(t)
	node.Pods = nil
	maps.DeleteFunc(node.Labels, func(key, _ string) bool {
		return strings.HasPrefix(key, deploy) || strings.HasPrefix(key, anchor)
	})
	return node
}

func TestNext(t *testing.T) {
	down := func(unreachable bool, since time.Duration) removal.Kubelet {
		return removal.Kubelet{Unreachable: unreachable, Since: now.Add(-since)}
	}
	users := []string{"team/a", "team/b", "team/c", "team/d"}
	tests := map[string]struct {
		empty   bool
		change  func(*removal.Node)
		action  removal.Action
		message string
		until   time.Duration
		asks    bool
		failed  bool
	}{
		"an idle node": {
			change: func(*removal.Node) {}, action: removal.TakeOff, message: "operands are being removed", asks: true,
		},
		"GPUs in use": {
			change: func(n *removal.Node) { n.Users = users }, action: removal.Hold, asks: true,
			message: "held by team/a, team/b, team/c and 1 more",
		},
		"GPUs in use by as many pods as are named": {
			change: func(n *removal.Node) { n.Users = users[:3] }, action: removal.Hold, asks: true,
			message: "held by team/a, team/b, team/c",
		},
		"GPUs in use, and force": {
			change: func(n *removal.Node) { n.Users, n.Force = users, true }, action: removal.TakeOff,
			message: "operands are being removed",
		},
		"a pod that came meanwhile": {
			empty: true, change: func(n *removal.Node) { n.Users = users[:1] }, action: removal.Hold, asks: true,
			message: "held by team/a",
		},
		"pods that end": {
			empty:   true,
			change:  func(n *removal.Node) { n.Pods = []removal.Pod{{Name: "driver-x", Operand: "driver"}} },
			action:  removal.Wait,
			message: "waits until these pods have ended: driver-x",
		},
		"an idle node with a pod that ends": {
			change: func(n *removal.Node) { n.Pods = append(n.Pods, removal.Pod{Name: "x-x", Operand: "x"}) },
			action: removal.TakeOff, message: "operands are being removed", asks: true,
		},
		"GPUs in use on a node that is no longer known to have some": {
			change: func(n *removal.Node) {
				delete(n.Labels, "nvidia.com/gpu-operator.pool")
				delete(n.Labels, "nvidia.com/gpu.present")
				n.Users = users[:1]
			},
			action: removal.Hold, message: "held by team/a", asks: true,
		},
		"labels of an administrator": {
			change: func(n *removal.Node) { n.Managed = false }, asks: true,
			action: removal.Clean, message: "the host is cleaned up",
		},
		"labels of an administrator, and a pod of another operand": {
			change: func(n *removal.Node) {
				n.Managed, n.Pods = false, append(n.Pods, removal.Pod{Name: "x-x", Operand: "x"})
			},
			action: removal.Wait, message: "waits until these pods have ended: x-x",
		},
		"a driver upgrade": {
			empty: true, change: func(n *removal.Node) { n.Upgrading = true }, action: removal.Wait, asks: true,
			message: "waits until its driver upgrade has ended",
		},
		"no pods": {
			empty: true, change: func(*removal.Node) {}, action: removal.Clean, message: "the host is cleaned up", asks: true,
		},
		"a node without GPUs": {
			empty: true, action: removal.Clean, message: "the host is cleaned up",
			change: func(n *removal.Node) { n.Labels, n.Users = map[string]string{}, users },
		},
		"an excluded node": {
			empty: true, change: func(n *removal.Node) { n.Excluded, n.Users = true, users }, action: removal.Release,
		},
		"a node that only has a condition": {
			empty: true, action: removal.Release,
			change: func(n *removal.Node) { n.Marked, n.Labels = false, map[string]string{} },
		},
		"the clean-up": {
			empty: true, change: cleaning(removal.Cleaner{}), action: removal.Wait,
			message: "waits for the clean-up of the host",
		},
		"a clean-up that fails": {
			empty: true, change: cleaning(removal.Cleaner{Failed: true, Message: "busy"}), action: removal.Wait,
			message: "the clean-up of the host fails: busy", failed: true,
		},
		"a clean-up with a long message": {
			empty: true, change: cleaning(removal.Cleaner{Message: strings.Repeat("x", 600)}), action: removal.Wait,
			message: "waits for the clean-up of the host: " + strings.Repeat("x", 473) + "...",
		},
		"a clean-up that fails, and force": {
			empty: true, action: removal.Release, message: "busy",
			change: func(n *removal.Node) { cleaning(removal.Cleaner{Failed: true, Message: "busy"})(n); n.Force = true },
		},
		"a clean host": {empty: true, change: cleaning(removal.Cleaner{Done: true}), action: removal.Release},
		"a clean host with a pod that was created late": {
			empty: true, action: removal.Wait, message: "waits until these pods have ended: driver-x",
			change: func(n *removal.Node) {
				cleaning(removal.Cleaner{Done: true})(n)
				n.Pods = []removal.Pod{{Name: "driver-x", Operand: "driver"}}
			},
		},
		"a released node": {
			empty: true, change: func(n *removal.Node) { n.Written, n.Marked = false, false }, action: removal.Done,
		},
		"an unreachable node": {
			change: func(n *removal.Node) { n.Kubelet = down(true, time.Minute) }, action: removal.TakeOff, asks: true,
			message: "operands are being removed", until: 4 * time.Minute,
		},
		"a node that has been unreachable for long": {
			change: func(n *removal.Node) { n.Kubelet, n.Users = down(true, patience), users }, action: removal.Release,
			message: "the kubelet has not been ready since 1970-01-12T13:41:40Z",
		},
		"a node that has not been ready for long": {
			change: func(n *removal.Node) { n.Kubelet = down(false, patience) }, action: removal.Release, asks: true,
			message: "the kubelet has not been ready since 1970-01-12T13:41:40Z",
		},
		"a node that has not been ready for long, with GPUs in use": {
			change: func(n *removal.Node) { n.Kubelet, n.Users = down(false, patience), users[:1] }, action: removal.Hold,
			message: "held by team/a", asks: true,
		},
		"an unreachable node whose pods cannot end": {
			change: func(n *removal.Node) {
				n.Kubelet, n.Written, n.Marked, n.Labels = down(true, patience), false, false, map[string]string{}
			},
			action: removal.Done,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := runningNode(t)
			if test.empty {
				node = emptyNode(t)
			}
			test.change(node)
			g.Expect(node.NeedsUsers()).To(Equal(test.asks), "whether pods are read")
			step := node.Next()
			g.Expect(step.Action).To(Equal(test.action))
			g.Expect(step.Message).To(Equal(test.message))
			g.Expect(step.Failed).To(Equal(test.failed))
			reason := "Removing"
			switch {
			case test.action == removal.Hold:
				reason = "RemovalHeld"
			case test.failed:
				reason = "RemovalFailed"
			}
			g.Expect(step.Reason()).To(Equal(reason))
			if test.until == 0 {
				g.Expect(step.Until).To(BeZero())
			} else {
				g.Expect(step.Until).To(Equal(now.Add(test.until)))
			}
		})
	}
}

func cleaning(cleaner removal.Cleaner) func(*removal.Node) {
	return func(n *removal.Node) {
		n.Labels["nvidia.com/gpu-operator.cleanup"], n.Cleaner = "true", cleaner
	}
}

// TestStory plays the removal of the stack from one node. Each pod ends one step after its labels are removed.
func TestStory(t *testing.T) {
	node := runningNode(t)
	var story strings.Builder
	for range 30 {
		step := node.Next()
		fmt.Fprintf(&story, "%s: %s\n", step.Action, step.Message)
		for _, key := range slices.Sorted(maps.Keys(step.Labels)) {
			if value := step.Labels[key]; value != nil {
				fmt.Fprintf(&story, "  %s=%s\n", key, *value)
				node.Labels[key] = *value
				continue
			}
			fmt.Fprintf(&story, "  - %s\n", key)
			delete(node.Labels, key)
		}
		switch step.Action {
		case removal.Wait:
			node.Pods = slices.DeleteFunc(node.Pods, func(pod removal.Pod) bool {
				return node.Labels[deploy+string(pod.Operand)] == "" && node.Labels[anchor+string(pod.Operand)] == ""
			})
			node.Cleaner.Done = node.Labels["nvidia.com/gpu-operator.cleanup"] != ""
		case removal.Release:
			node.Labels, node.Written, node.Marked = map[string]string{}, false, false
		case removal.Done, removal.Hold, removal.TakeOff, removal.Clean:
		}
		if step.Action == removal.Done {
			break
		}
	}
	golden.Compare(t, "testdata/story.txt", story.String())
}
