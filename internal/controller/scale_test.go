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
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

const (
	// many nodes are those of a large cluster.
	nodeCount = 5000
	// passBudget is for one pass over so many nodes, and heapBudget, in bytes, for all that is kept of them: Nodes, Pods
	// and entries. The test takes the processor's time, and allows slack times as much: other programs may use the machine.
	passBudget, heapBudget, slack = 25 * time.Millisecond, 300 << 20, 3
)

// large is an operator at a cluster of many nodes, on all of which everything works.
type largeCluster struct {
	*operator
	names []string
	pods  int
	// changes counts the changes that were made.
	changes int
}

func newLargeCluster() *largeCluster {
	l := &largeCluster{operator: newOperator()}
	l.names = l.addNodes(0, nodeCount)
	l.pods = l.makeReady(l.names)
	return l
}

// another is another node each time.
func (l *largeCluster) nextNode() string {
	l.changes++
	return l.names[l.changes%len(l.names)]
}

// fails has the exporter crash on another node, and work again on the one before.
func (l *largeCluster) crashExporter() {
	was := l.names[l.changes%len(l.names)]
	l.updatePod("dcgm-exporter", was, recoverPod)
	l.reconcileNode(was)
	is := l.nextNode()
	l.updatePod("dcgm-exporter", is, crashPod)
	l.reconcileNode(is)
	l.advance(2 * time.Second)
}

// relabel changes a label of another node, as the discovery of its GPUs does.
func (l *largeCluster) relabelNode() {
	before := &corev1.Node{}
	must(l.Get(context.Background(), client.ObjectKey{Name: l.nextNode()}, before))
	after := before.DeepCopy()
	after.Labels[labels.FeatureTimestamp] = fmt.Sprint(1763900000 + l.changes)
	l.put(after)
	l.reconcileNode(after.Name)
	l.advance(2 * time.Second)
}

// heapAfterGC is how many bytes live objects have.
func heapAfterGC() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// cpuTime is what the process has used of the processors.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// median is that of the processor's times of eleven runs, each after the preparation.
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

// All that is kept of 5,000 nodes and 55,000 pods fits in the budget, and so do the passes over them. At rest nothing is
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
	heap := heapAfterGC()
	t.Logf("heap: %d MB", heap>>20)
	g.Expect(heap).To(BeNumerically("<", heapBudget), "heap")

	written := maps.Clone(l.writes)
	for name, run := range map[string]func(){
		"a pass": func() { l.reconcileAll() }, "a node": func() { l.reconcileNode(l.nextNode()) },
	} {
		took := median(func() {}, run)
		t.Logf("%s with nothing new: %s", name, took)
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
	heap := float64(heapAfterGC()) / (1 << 20)
	measure := func(name string, prepare, run func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				prepare()
				b.StartTimer()
				run()
			}
			b.ReportMetric(heap, "heap-MB")
		})
	}
	nothing, pass := func() {}, func() { l.reconcileAll() }
	measure("pass/nothing new", nothing, pass)
	measure("pass/a node has failed", l.crashExporter, pass)
	measure("pass/a node was labelled", l.relabelNode, pass)
	measure("node/nothing new", nothing, func() { l.reconcileNode(l.nextNode()) })
	node, pod := &corev1.Node{}, &corev1.Pod{}
	must(l.Get(context.Background(), client.ObjectKey{Name: l.names[0]}, node))
	pods := &corev1.PodList{}
	must(l.List(context.Background(), pods, client.MatchingFields{observe.PodNodeField: l.names[0]}, client.InNamespace(namespace)))
	pods.Items[0].DeepCopyInto(pod)
	labelled := node.DeepCopy()
	labelled.Labels["example.com/other"] = "true"
	nodes := observe.NodeChanges(func(string) bool { return false }, func(string, *corev1.NodeCondition) bool { return true })
	measure("event/label of others on a node", nothing, func() { nodes.Update(event.UpdateEvent{ObjectOld: node, ObjectNew: labelled}) })
	measure("event/pod", nothing, func() { observe.PodChanges().Update(event.UpdateEvent{ObjectOld: &pods.Items[0], ObjectNew: pod}) })
}
