package simulator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	driverApp    = "nvidia-driver-daemonset"
	toolkitApp   = "nvidia-container-toolkit-daemonset"
	pluginApp    = "nvidia-device-plugin-daemonset"
	validatorApp = "nvidia-operator-validator"
)

// env is a control plane with the stack of testdata and a simulator.
type env struct {
	client    kubernetes.Interface
	simulator *simulator.Simulator
}

// TestSimulator runs all checks on one control plane, each on nodes of its own.
func TestSimulator(t *testing.T) {
	cluster.SkipInSample(t)
	e := newEnv(t)
	t.Run("no programs", func(t *testing.T) {
		_, err := e.simulator.AddNode(t.Context(), simulator.NodeSpec{Name: "processes-0", Processes: true})
		if err == nil || !strings.Contains(err.Error(), "Options.Programs is not set") {
			t.Errorf("a node that cannot run processes is refused with %v", err)
		}
	})
	t.Run("order", func(t *testing.T) { checkOrder(t, e) })
	t.Run("crash loop", func(t *testing.T) { checkCrashLoop(t, e) })
	t.Run("device plugin", func(t *testing.T) { checkDevicePlugin(t, e) })
	t.Run("modules", func(t *testing.T) { checkModules(t, e) })
	t.Run("pulls", func(t *testing.T) { checkPulls(t, e) })
	t.Run("quiet", func(t *testing.T) { checkQuiet(t, e) })
}

func newEnv(t *testing.T) env {
	t.Helper()
	c, timing := cluster.StartFor(t, cluster.Options{}, "testdata"), simulator.DefaultTiming().Scale(0.5)
	s := simulator.Play(t, simulator.Options{Config: c.SimulatorConfig, Timing: &timing, Modules: true})
	return env{kubernetes.NewForConfigOrDie(c.Config), s}
}

// addNode creates a node with the labels that the stack's DaemonSets select, as no operator labels it.
func (e env) addNode(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{}
	for _, operand := range []string{"driver", "container-toolkit", "device-plugin", "operator-validator"} {
		labels["nvidia.com/gpu.deploy."+operand] = "true"
	}
	if _, err := e.simulator.AddNode(t.Context(), simulator.NodeSpec{Name: name, Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

// follow calls see for each change of a pod until it returns true.
func (e env) follow(t *testing.T, see func(pod *corev1.Pod) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := map[string]string{}
	pods := cache.NewListWatchFromClient(e.client.CoreV1().RESTClient(), "pods", cluster.OperatorNamespace,
		fields.Everything())
	// Use an informer, since the API server closes a plain watch that is too slow.
	_, err := watchtools.UntilWithSync(ctx, pods, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted {
			return false, nil
		}
		seen[pod.Name+" on "+pod.Spec.NodeName] = fmt.Sprint(pod.Status.Phase, pod.Status.Conditions)
		return see(pod), nil
	})
	if err != nil {
		t.Fatalf("did not happen (%v); the last pods were:\n%v", err, seen)
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (e env) gpus(t *testing.T, node string) (allocatable, capacity int64) {
	t.Helper()
	object, err := e.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a, c := object.Status.Allocatable["nvidia.com/gpu"], object.Status.Capacity["nvidia.com/gpu"]
	return a.Value(), c.Value()
}

// checkOrder shows that each node starts its stack in the order of the init containers' waits.
func checkOrder(t *testing.T, e env) {
	nodes := []string{"order-0", "order-1", "order-2"}
	for _, node := range nodes {
		e.addNode(t, node)
	}
	order := map[string][]string{}
	ready := 0
	e.follow(t, func(pod *corev1.Pod) bool {
		node, app := pod.Spec.NodeName, pod.Labels["app"]
		if isReady(pod) && !slices.Contains(order[node], app) {
			order[node] = append(order[node], app)
			ready++
		}
		return ready == len(nodes)*4
	})
	want := []string{driverApp, toolkitApp, pluginApp, validatorApp}
	for _, node := range nodes {
		if !slices.Equal(order[node], want) {
			t.Errorf("%s became ready in the order %v, want %v", node, order[node], want)
		}
		if allocatable, capacity := e.gpus(t, node); allocatable != 8 || capacity != 8 {
			t.Errorf("%s has %d of %d GPUs allocatable, want 8 of 8", node, allocatable, capacity)
		}
	}
	events, err := e.client.CoreV1().Events(cluster.OperatorNamespace).List(t.Context(),
		metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox"})
	if err != nil {
		t.Fatal(err)
	}
	// Plugin and validator of each node need the runtime handler, and existed before it.
	if got, want := len(events.Items), len(nodes)*2; got != want {
		t.Errorf("%d pods have sandbox Events, want %d", got, want)
	}
	for _, event := range events.Items {
		if !strings.Contains(event.Message, `no runtime for "nvidia" is configured`) {
			t.Errorf("the Event of %s has message %q", event.InvolvedObject.Name, event.Message)
		}
	}
}

// checkCrashLoop shows a fault that is injected before the pod exists, its effect, and its removal.
func checkCrashLoop(t *testing.T, e env) {
	const node = "crash-0"
	e.simulator.Break("driver", node, simulator.CrashLoop)
	e.addNode(t, node)
	e.follow(t, func(pod *corev1.Pod) bool {
		if pod.Spec.NodeName != node {
			return false
		}
		if isReady(pod) {
			t.Errorf("%s is ready with a broken driver", pod.Name)
		}
		return pod.Labels["app"] == driverApp && hasCrashedTwice(pod)
	})
	// As a user of the demo repairs it; TestModules covers Heal.
	repair := []byte(`{"metadata":{"annotations":{"` + simulator.RepairAnnotation + `":"driver"}}}`)
	if _, err := e.client.CoreV1().Nodes().Patch(
		t.Context(), node, types.MergePatchType, repair, metav1.PatchOptions{},
	); err != nil {
		t.Fatal(err)
	}
	e.follow(t, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == node && pod.Labels["app"] == validatorApp && isReady(pod)
	})
}

// hasCrashedTwice reports whether the pod has the status of a crash loop.
func hasCrashedTwice(pod *corev1.Pod) bool {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	status := pod.Status.ContainerStatuses[0]
	now, last := status.State.Waiting, status.LastTerminationState.Terminated
	return status.RestartCount >= 2 && now != nil && now.Reason == "CrashLoopBackOff" &&
		last != nil && last.ExitCode == 1 && last.Reason == "Error"
}

// checkDevicePlugin shows that allocatable GPUs follow the plugin's pod, and the capacity stays.
func checkDevicePlugin(t *testing.T, e env) {
	const node = "plugin-0"
	e.addNode(t, node)
	var plugin string
	e.follow(t, func(pod *corev1.Pod) bool {
		if pod.Spec.NodeName == node && pod.Labels["app"] == pluginApp && isReady(pod) {
			plugin = pod.Name
		}
		return plugin != ""
	})
	allocatable := e.followGPUs(t, node)
	if err := e.client.CoreV1().Pods(cluster.OperatorNamespace).Delete(
		t.Context(), plugin, metav1.DeleteOptions{},
	); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(20 * time.Second)
	for _, want := range []int64{8, 0, 8} {
		select {
		case got := <-allocatable:
			if got != want {
				t.Errorf("%d GPUs are allocatable, want %d", got, want)
			}
		case <-timeout:
			t.Fatalf("%d GPUs never became allocatable", want)
		}
	}
	if _, capacity := e.gpus(t, node); capacity != 8 {
		t.Errorf("capacity is %d, want 8", capacity)
	}
}

// followGPUs sends the number of allocatable GPUs of a node whenever it changes.
func (e env) followGPUs(t *testing.T, node string) <-chan int64 {
	t.Helper()
	events, err := e.client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	counts := make(chan int64, 100)
	go func() {
		last := int64(-1)
		for event := range events.ResultChan() {
			object, ok := event.Object.(*corev1.Node)
			if !ok {
				return
			}
			if quantity, ok := object.Status.Allocatable["nvidia.com/gpu"]; ok && quantity.Value() != last {
				last = quantity.Value()
				counts <- last
			}
		}
	}()
	return counts
}

// checkQuiet shows that nothing is written for pods and nodes that do not change.
func checkQuiet(t *testing.T, e env) {
	const window = 2 * time.Second
	e.follow(t, func(*corev1.Pod) bool {
		pods, err := e.client.CoreV1().Pods(cluster.OperatorNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !isReady(&pod) })
	})
	list, err := e.client.CoreV1().Pods(cluster.OperatorNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := e.client.CoreV1().Pods(cluster.OperatorNamespace).Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	select {
	case event := <-events.ResultChan():
		t.Errorf("%s event at rest: %v", event.Type, event.Object)
	case <-time.After(window):
	}
}
