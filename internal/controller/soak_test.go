package controller_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

const (
	// soakPasses is the number of passes of the soak, and settledPasses that after which nothing more may be kept.
	soakPasses, settledPasses = 2000, 200
	// maxGrowth limits how many bytes more may live after the soak. That is less than 3 kB for each pass: a pass reads
	// several times as much.
	maxGrowth = 5 << 20
)

// relabel changes a label of a node, as GPU Feature Discovery does.
func (o *operator) relabel(name, value string) {
	before := &corev1.Node{}
	must(o.Get(context.Background(), client.ObjectKey{Name: name}, before))
	after := before.DeepCopy()
	after.Labels[labels.FeatureTimestamp] = value
	o.put(after)
}

// editPolicy changes the spec of the policy, so that all is planned and rendered again.
func (o *operator) editPolicy(edit int) {
	o.changePolicy(func(spec *v1.ClusterPolicySpec) {
		spec.DaemonSets = &v1.DaemonSetsSpec{Labels: v1.Labels{"example.com/edit": v1.LabelValue(fmt.Sprint(edit))}}
	})
}

// soakPass changes something of the cluster, reconciles the node that it concerns, and runs a pass.
func (o *operator) soakPass(names []string, pass int) {
	name := names[pass%len(names)]
	switch pass % 8 {
	case 0, 1:
		o.relabel(name, fmt.Sprint(pass))
	case 2:
		o.updatePod("dcgm-exporter", name, func(pod *corev1.Pod) { crashPod(pod); says(pod, fmt.Sprint("attempt ", pass)) })
	case 5:
		o.updatePod("dcgm-exporter", names[(pass-3)%len(names)], recoverPod)
		o.reconcileNode(names[(pass-3)%len(names)])
	case 6:
		if pass%400 == 6 {
			o.editPolicy(pass)
			o.reconcileRound(names)
		}
	case 7:
		// A node leaves, and another one joins.
		if pass%40 == 7 {
			o.removeNodes(names[:1])
			o.reconcileNode(names[0])
			names[0] = o.addNodes(10+pass, 1)[0]
			o.makeReady(names[:1])
		}
	}
	o.reconcileNode(names[pass%len(names)])
	o.advance(2 * time.Second)
	o.reconcileAll()
}

// says adds a termination message to the pod.
func says(pod *corev1.Pod, message string) {
	pod.Status.ContainerStatuses[0].State.Terminated.Message = message
}

// The memory of passes and of reconciles of nodes does not grow while nodes change, fail, join and leave.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds; make test-envtest runs it")
	}
	g := NewWithT(t)
	o := newOperator()
	names := o.addNodes(0, 5)
	o.makeReady(names)
	g.Expect(o.policyStatus().State).To(Equal(v1.StateReady))
	var settled int64
	var goroutines int
	for pass := range soakPasses {
		o.soakPass(names, pass)
		if pass == settledPasses {
			settled, goroutines = heap.Live(), runtime.NumGoroutine()
		}
	}
	g.Expect(o.fleet.Names()).To(ConsistOf(names))
	live := heap.Live()
	t.Logf("heap after %d passes: %d kB, after %d: %d kB", settledPasses, settled>>10, soakPasses, live>>10)
	g.Expect(live).To(BeNumerically("<", settled+maxGrowth))
	g.Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
	runtime.KeepAlive(o)
}
