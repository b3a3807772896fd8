package node_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// The operands whose pods the specs change.
const (
	driver    = "driver"
	toolkit   = "container-toolkit"
	discovery = "node-discovery"
)

// notReady is the start-up taint that the operator may change in every cluster.
var notReady = corev1.Taint{Key: labels.TaintNotReady, Effect: corev1.TaintEffectNoSchedule}

// testNode is a node with the operands' pods, as a test changes them.
type testNode struct {
	client client.Client
	name   string
}

// created counts nodes, for unique names.
var created int

// newTestNode creates a GPU node on which everything works, with these changes. It is removed after the spec.
func newTestNode(ctx context.Context, c client.Client, changes ...func(*corev1.Node)) *testNode {
	GinkgoHelper()
	created++
	m := &testNode{client: c, name: fmt.Sprintf("node-%d", created)}
	gpus := corev1.ResourceList{labels.ResourceGPU: resource.MustParse("8")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{
			labels.DiscoveryPCIPresent: labels.True, labels.DiscoveryOSID: "ubuntu", labels.DiscoveryOSVersion: "24.04",
		}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
			Capacity: gpus, Allocatable: gpus,
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
			},
		},
	}
	for _, change := range changes {
		change(node)
	}
	taints := node.Spec.Taints
	Expect(c.Create(ctx, node)).To(Succeed())
	DeferCleanup(m.remove)
	// The API server adds a taint to new nodes.
	m.update(ctx, func(node *corev1.Node) { node.Spec.Taints = taints })
	var creating errgroup.Group
	for i := range catalogue {
		if o := &catalogue[i]; len(o.Workloads) > 0 || o.Discovers {
			creating.Go(func() error { return m.createPod(ctx, o.Name, ready(time.Now())) })
		}
	}
	Expect(creating.Wait()).To(Succeed())
	return m
}

// createPod creates the operand's pod on the node.
func (m *testNode) createPod(ctx context.Context, name operand.Name, change func(*corev1.PodStatus)) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.name + "-" + string(name), Namespace: cluster.OperatorNamespace,
			Labels: map[string]string{labels.Operand: string(name), labels.ManagedBy: labels.ManagedByValue},
		},
		Spec: corev1.PodSpec{
			NodeName:   m.name,
			Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
		},
	}
	if err := m.client.Create(ctx, pod); err != nil {
		return err
	}
	change(&pod.Status)
	return m.client.Status().Update(ctx, pod)
}

// deletePod deletes the operand's pod immediately.
func (m *testNode) deletePod(ctx context.Context, name operand.Name) {
	GinkgoHelper()
	Expect(m.client.Delete(ctx, m.pod(ctx, name), client.GracePeriodSeconds(0))).To(Succeed())
}

func (m *testNode) pod(ctx context.Context, name operand.Name) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: m.name + "-" + string(name)}
	Expect(m.client.Get(ctx, key, pod)).To(Succeed())
	return pod
}

// setPod changes the status of the operand's pod.
func (m *testNode) setPod(ctx context.Context, name operand.Name, change func(*corev1.PodStatus)) {
	GinkgoHelper()
	pod := m.pod(ctx, name)
	change(&pod.Status)
	Expect(m.client.Status().Update(ctx, pod)).To(Succeed())
}

// ready makes a pod ready since that time.
func ready(since time.Time) func(*corev1.PodStatus) {
	return func(status *corev1.PodStatus) {
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
		*status = podStatus(corev1.ConditionTrue, running)
		status.Conditions[1].LastTransitionTime = metav1.NewTime(since)
	}
}

// starts makes a pod run without being ready.
func starts(status *corev1.PodStatus) {
	*status = podStatus(corev1.ConditionFalse, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// crashes makes the container of a pod wait in a crash loop.
func crashes(status *corev1.PodStatus) {
	*status = podStatus(
		corev1.ConditionFalse, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	)
	status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1},
	}
}

func podStatus(isReady corev1.ConditionStatus, state corev1.ContainerState) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: isReady},
		},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: state, Ready: isReady == corev1.ConditionTrue},
		},
	}
}

func (m *testNode) node(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(m.client.Get(ctx, client.ObjectKey{Name: m.name}, node)).To(Succeed())
	return node
}

// update changes metadata and taints of the node.
func (m *testNode) update(ctx context.Context, change func(*corev1.Node)) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := m.node(ctx)
		change(node)
		return m.client.Update(ctx, node)
	})).To(Succeed())
}

// updateStatus changes the status of the node.
func (m *testNode) updateStatus(ctx context.Context, change func(*corev1.NodeStatus)) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := m.node(ctx)
		change(&node.Status)
		return m.client.Status().Update(ctx, node)
	})).To(Succeed())
}

func noGPUs(status *corev1.NodeStatus) {
	status.Allocatable = corev1.ResourceList{labels.ResourceGPU: resource.MustParse("0")}
}

// remove deletes the node and the pods on it.
func (m *testNode) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(m.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}}))).
		To(Succeed())
	Expect(m.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(cluster.OperatorNamespace),
		client.MatchingFields{observe.PodNodeField: m.name}, client.GracePeriodSeconds(0))).To(Succeed())
}

// reported returns status and reason of the condition GPUReady, or "" if there is none.
func (m *testNode) reported(ctx context.Context) string {
	GinkgoHelper()
	condition := assess.GPUReadyCondition(m.node(ctx))
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// events returns type and reason of the Events about the node.
func (m *testNode) events(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.EventList{}
	Expect(m.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingFields{"involvedObject.name": m.name})).To(Succeed())
	found := []string{}
	for i := range list.Items {
		found = append(found, list.Items[i].Type+" "+list.Items[i].Reason)
	}
	return found
}
