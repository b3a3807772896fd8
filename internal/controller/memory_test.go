package controller_test

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// reads are weak pointers to what was read from the caches and from the API server.
type reads struct {
	what  []string
	alive []func() bool
}

// add adds an object, or the items of a list.
func (r *reads) add(read any) {
	switch of := read.(type) {
	case *v1.ClusterPolicyList:
		addItems(r, of.Items)
	case *appsv1.DaemonSetList:
		addItems(r, of.Items)
	case *corev1.PodList:
		addItems(r, of.Items)
	case *corev1.NodeList:
		addItems(r, of.Items)
	case *corev1.ServiceList:
		addItems(r, of.Items)
	case *metav1.PartialObjectMetadataList:
		addItems(r, of.Items)
	case *corev1.Node:
		addRead(r, of)
	case *appsv1.DaemonSet:
		addRead(r, of)
	case *corev1.ConfigMap:
		addRead(r, of)
	}
}

// addItems adds the array of a list: a pointer to one item keeps all of them.
func addItems[T any](r *reads, items []T) {
	if len(items) > 0 {
		addRead(r, &items[0])
	}
}

func addRead[T any](r *reads, read *T) {
	pointer := weak.Make(read)
	r.what = append(r.what, fmt.Sprintf("%T", read))
	r.alive = append(r.alive, func() bool { return pointer.Value() != nil })
}

// left returns the types of what is still in memory.
func (r *reads) left() []string {
	heap.Collect()
	var left []string
	for i, is := range r.alive {
		if is() {
			left = append(left, r.what[i])
		}
	}
	return left
}

// No list or object that a pass or the reconcile of a node reads outlives it: a pointer to one item of a list keeps all
// items in memory, and what they point to.
func TestWhatWasReadIsReleased(t *testing.T) {
	g := NewWithT(t)
	o := newOperator()
	names := o.addNodes(0, 4)
	o.makeReady(names)
	read := &reads{}
	o.onRead = read.add
	for round := range 3 {
		o.relabel(names[0], fmt.Sprint(round))
		o.editPolicy(round)
		o.updatePod("device-plugin", names[1], crashPod)
		o.reconcileRound(names)
		o.advance(time.Minute)
		o.updatePod("device-plugin", names[1], recoverPod)
		o.reconcileRound(names)
		o.advance(time.Minute)
	}
	o.onRead = nil
	g.Expect(read.what).To(ContainElements("*v1.ClusterPolicy", "*v1.DaemonSet", "*v1.Pod", "*v1.Node"))
	g.Expect(read.left()).To(BeEmpty())
	runtime.KeepAlive(o)
}

// A cached Node and its entry have one map of labels, once an event of the Node has come that changes none of them.
func TestLabelsAreKeptOnce(t *testing.T) {
	g := NewWithT(t)
	o := newOperator()
	names := o.addNodes(0, 1)
	o.makeReady(names)
	cached := &corev1.Node{}
	must(o.Get(t.Context(), client.ObjectKey{Name: names[0]}, cached))
	o.put(asCached(cached.DeepCopy(), &corev1.Node{}, o.nodes.Node))
	must(o.Get(t.Context(), client.ObjectKey{Name: names[0]}, cached))
	g.Expect(len(cached.Labels)).To(BeNumerically(">", 50))
	g.Expect(reflect.ValueOf(cached.Labels).Pointer()).To(Equal(reflect.ValueOf(o.fleet.Labels(names[0])).Pointer()))
	g.Expect(o.fleet.Labels("unknown")).To(BeNil())
}
