package main

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// watched returns a liveCluster that has been read and is empty.
func watched() *liveCluster {
	live := newLiveCluster(nil)
	live.policies, live.nodes = map[types.UID]*v1.ClusterPolicy{}, map[types.UID]*corev1.Node{}
	live.usage = &overview.Usage{}
	return live
}

// joinAndLeave plays the events of a node that joins, has a pod with a GPU, and leaves.
func (c *liveCluster) joinAndLeave(i int, show func()) {
	gpus := corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")}
	name := fmt.Sprint("node-", i)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{labels.GPUPresent: labels.True},
		},
		Status: corev1.NodeStatus{Capacity: gpus, Allocatable: gpus},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: gpus}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "policy", Generation: int64(i)}}
	c.setNode(false, node)
	c.setPod(false, pod)
	c.setPolicy(false, policy)
	show()
	c.setPod(true, pod)
	c.setNode(true, node)
	show()
}

// status --watch may run for days: nothing stays of 5,000 nodes that have joined and left, one each minute, nor of
// their pods.
func TestWatchedStatusDoesNotGrow(t *testing.T) {
	g := NewWithT(t)
	live, lines, now := watched(), newScreen(io.Discard, io.Discard, true), shownAt
	show := func() {
		now = now.Add(30 * time.Second)
		g.Expect(lines.show(live.overview(), nil, now)).To(Succeed())
	}
	var settled int64
	goroutines := runtime.NumGoroutine()
	for i := range 5000 {
		live.joinAndLeave(i, show)
		if i == 500 {
			settled = heap.Live()
		}
	}
	g.Expect(heap.Live()-settled).To(BeNumerically("<", 100<<10), "bytes that are kept")
	g.Eventually(runtime.NumGoroutine).WithTimeout(time.Minute).Should(BeNumerically("<=", goroutines))
	g.Expect(live.overview().Nodes).To(BeEmpty())
	runtime.KeepAlive(lines)
}
