package controller_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

const (
	// nodeCount is the size of a large cluster.
	nodeCount = 5000
	// passBudget limits the CPU time of one pass over these nodes, and heapBudget the bytes of their Nodes, Pods and
	// entries. The test allows slack times passBudget, because the machine may be busy: other tests run beside it.
	passBudget, heapBudget, slack = 25 * time.Millisecond, 300 << 20, 6
)

// largeCluster is an operator with many nodes, all of them ready.
type largeCluster struct {
	*operator
	names []string
	pods  int
	// changes counts the calls of nextNode.
	changes int
}

func newLargeCluster() *largeCluster {
	l := &largeCluster{operator: newOperator()}
	l.names = l.addNodes(0, nodeCount)
	l.pods = l.makeReady(l.names)
	return l
}

// nextNode returns another node each time.
func (l *largeCluster) nextNode() string {
	l.changes++
	return l.names[l.changes%len(l.names)]
}

// crashExporter makes the exporter crash on the next node, and recover on the one before.
func (l *largeCluster) crashExporter() {
	previous := l.names[l.changes%len(l.names)]
	l.updatePod("dcgm-exporter", previous, recoverPod)
	l.reconcileNode(previous)
	next := l.nextNode()
	l.updatePod("dcgm-exporter", next, crashPod)
	l.reconcileNode(next)
	l.advance(2 * time.Second)
}

// relabelNode changes a label of the next node, as GPU Feature Discovery does.
func (l *largeCluster) relabelNode() {
	before := &corev1.Node{}
	must(l.Get(context.Background(), client.ObjectKey{Name: l.nextNode()}, before))
	after := before.DeepCopy()
	after.Labels[labels.FeatureTimestamp] = fmt.Sprint(1763900000 + l.changes)
	l.put(after)
	l.reconcileNode(after.Name)
	l.advance(2 * time.Second)
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// median returns the median CPU time of eleven runs, each after prepare.
func median(prepare, run func()) time.Duration {
	times := make([]time.Duration, 0, 11)
	for range cap(times) {
		prepare()
		began := cpuTime()
		run()
		times = append(times, cpuTime()-began)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// The state of 5,000 nodes and 55,000 pods fits in the heap budget, and a pass in its budget. At rest nothing is
// written.
func TestLargeCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	g := NewWithT(t)
	l := newLargeCluster()
	g.Expect(l.policyStatus().State).To(Equal(v1.StateReady))
	g.Expect(l.policyStatus().NodeSummary.Ready).To(BeEquivalentTo(nodeCount))
	g.Expect(l.pods).To(Equal(nodeCount * 11))
	live := heap.Live()
	t.Logf("heap: %d MB", live>>20)
	g.Expect(live).To(BeNumerically("<", heapBudget), "heap")

	written := maps.Clone(l.writes)
	for name, run := range map[string]func(){
		"a pass": func() { l.reconcileAll() }, "a node": func() { l.reconcileNode(l.nextNode()) },
	} {
		took := median(func() {}, run)
		t.Logf("%s without changes: %s", name, took)
		g.Expect(took).To(BeNumerically("<", slack*passBudget), name)
	}
	runtime.KeepAlive(l)
	g.Expect(l.writes).To(Equal(written), "writes at rest")
	for name, change := range map[string]func(){"failed": l.crashExporter, "been labelled": l.relabelNode} {
		took := median(change, func() { l.reconcileAll() })
		t.Logf("a pass after a node has %s: %s", name, took)
		g.Expect(took).To(BeNumerically("<", slack*passBudget), name)
	}
}

func BenchmarkLargeCluster(b *testing.B) {
	l := newLargeCluster()
	live := float64(heap.Live()) / (1 << 20)
	measure := func(name string, prepare, run func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				prepare()
				b.StartTimer()
				run()
			}
			b.ReportMetric(live, "heap-MB")
		})
	}
	nothing, pass := func() {}, func() { l.reconcileAll() }
	measure("pass/nothing new", nothing, pass)
	measure("pass/a node has failed", l.crashExporter, pass)
	measure("pass/a node was labelled", l.relabelNode, pass)
	measure("node/nothing new", nothing, func() { l.reconcileNode(l.nextNode()) })
	node, pod := &corev1.Node{}, &corev1.Pod{}
	must(l.Get(context.Background(), client.ObjectKey{Name: l.names[0]}, node))
	pods := l.podsOn(l.names[0])
	pods.Items[0].DeepCopyInto(pod)
	labelled := node.DeepCopy()
	labelled.Labels["example.com/other"] = "true"
	nodes := cachefilter.NodeChanges(
		func(string) bool { return false }, func(*corev1.Node) bool { return true })
	measure("event/label of others on a node", nothing, func() {
		nodes.Update(event.UpdateEvent{ObjectOld: node, ObjectNew: labelled})
	})
	measure("event/pod", nothing, func() {
		cachefilter.PodChanges().Update(event.UpdateEvent{ObjectOld: &pods.Items[0], ObjectNew: pod})
	})
}
