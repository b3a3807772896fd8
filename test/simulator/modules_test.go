package simulator_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const upgradeEnabled = "nvidia.com/gpu-driver-upgrade-enabled"

// modulesEnv is a node whose driver pods the test creates.
type modulesEnv struct {
	env
	node string
}

// checkModules shows what k8s-driver-manager does with each new driver pod of a node.
func checkModules(t *testing.T, e env) {
	m := modulesEnv{env: e, node: "modules-0"}
	m.prepare(t)
	m.driver(t, "first", "1")
	m.awaitPod(t, "the stack to be ready", func(pod *corev1.Pod) bool {
		return pod.Labels["app"] == validatorApp && isReady(pod)
	})

	user, validator := m.user(t, "user-1"), m.validator(t)
	m.remove(t, "first")
	m.driver(t, "equal", "1")
	m.awaitReady(t, "equal")
	m.keeps(t, user)
	m.awaitPod(t, "the validator to validate the equal driver", func(pod *corev1.Pod) bool {
		return pod.Labels["app"] == validatorApp && pod.UID != validator && isReady(pod)
	})
	m.keeps(t, user)

	m.annotate(t, "true")
	m.remove(t, "equal")
	m.driver(t, "other", "2")
	m.awaitPod(t, "k8s-driver-manager to fail twice", func(pod *corev1.Pod) bool {
		if pod.Name != "other" || len(pod.Status.InitContainerStatuses) == 0 {
			return false
		}
		last := pod.Status.InitContainerStatuses[0]
		return last.RestartCount >= 1 && last.LastTerminationState.Terminated != nil
	})
	m.keeps(t, user)
	m.remove(t, user)
	m.awaitReady(t, "other")

	m.annotate(t, "false")
	user = m.user(t, "user-2")
	m.remove(t, "other")
	m.driver(t, "evicting", "3")
	m.awaitReady(t, "evicting")
	pods := e.client.CoreV1().Pods(cluster.OperatorNamespace)
	if _, err := pods.Get(t.Context(), user, metav1.GetOptions{}); err == nil {
		t.Error("without the annotation k8s-driver-manager must have evicted the pod with a GPU")
	}
	m.awaitPod(t, "the paused operands to be back", func(pod *corev1.Pod) bool {
		return pod.Labels["app"] == validatorApp && isReady(pod)
	})

	if err := e.simulator.Reboot(t.Context(), m.node); err != nil {
		t.Fatal(err)
	}
	m.awaitPod(t, "the driver to restart after the reboot", func(pod *corev1.Pod) bool {
		return pod.Name == "evicting" && isReady(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1
	})
}

// checkPulls shows that a pod which pulls images ends, or reports the image that cannot be pulled.
func checkPulls(t *testing.T, e env) {
	m := modulesEnv{env: e, node: "pulls-0"}
	m.prepare(t)
	m.driver(t, "present", "1")
	m.awaitReady(t, "present")
	e.simulator.Break("driver", m.node, simulator.ImagePull)
	m.create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pull", Labels: map[string]string{
			"app.kubernetes.io/managed-by": "gpu-operator",
		}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
			{Name: "manager", Image: "example.com/manager:2"}, {Name: "driver", Image: "driver:2"},
		}},
	})
	m.awaitPod(t, "a failed pull of the driver alone", func(pod *corev1.Pod) bool {
		if pod.Name != "pull" || len(pod.Status.ContainerStatuses) < 2 {
			return false
		}
		manager, driver := pod.Status.ContainerStatuses[0].State, pod.Status.ContainerStatuses[1].State
		return manager.Terminated != nil && driver.Waiting != nil && driver.Waiting.Reason == "ImagePullBackOff"
	})
	e.simulator.Heal("driver", m.node)
	m.awaitPod(t, "the pull to succeed", func(pod *corev1.Pod) bool {
		return pod.Name == "pull" && pod.Status.Phase == corev1.PodSucceeded
	})
	m.remove(t, "pull")
}

// prepare creates the node, with the operands of the stack except the driver.
func (m modulesEnv) prepare(t *testing.T) {
	t.Helper()
	labels := map[string]string{}
	for _, operand := range []string{"container-toolkit", "device-plugin", "operator-validator"} {
		labels["nvidia.com/gpu.deploy."+operand] = "true"
	}
	if _, err := m.simulator.AddNode(t.Context(), simulator.NodeSpec{Name: m.node, Labels: labels}); err != nil {
		t.Fatal(err)
	}
}

func (m modulesEnv) create(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Spec.NodeName = m.node
	_, err := m.client.CoreV1().Pods(cluster.OperatorNamespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// driver creates a driver pod that installs the driver with this digest.
func (m modulesEnv) driver(t *testing.T, name, digest string) {
	t.Helper()
	m.create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": driverApp + "-test"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "k8s-driver-manager", Image: "manager", Command: []string{"driver-manager"}},
			},
			Containers: []corev1.Container{{
				Name: "nvidia-driver-ctr", Image: "driver:" + digest,
				Env: []corev1.EnvVar{{Name: "DRIVER_CONFIG_DIGEST", Value: digest}},
			}},
		},
	})
}

// user creates a pod that holds a GPU.
func (m modulesEnv) user(t *testing.T, name string) string {
	t.Helper()
	m.create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "example.com/user", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
			},
		}}},
	})
	m.awaitReady(t, name)
	return name
}

// validator returns the UID of the validator's pod.
func (m modulesEnv) validator(t *testing.T) types.UID {
	t.Helper()
	var uid types.UID
	m.awaitPod(t, "the validator", func(pod *corev1.Pod) bool {
		uid = pod.UID
		return pod.Labels["app"] == validatorApp && isReady(pod)
	})
	return uid
}

func (m modulesEnv) remove(t *testing.T, name string) {
	t.Helper()
	err := m.client.CoreV1().Pods(cluster.OperatorNamespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (m modulesEnv) keeps(t *testing.T, name string) {
	t.Helper()
	pod, err := m.client.CoreV1().Pods(cluster.OperatorNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.DeletionTimestamp != nil {
		t.Errorf("pod %s with a GPU is being deleted", name)
	}
}

func (m modulesEnv) annotate(t *testing.T, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, upgradeEnabled, value)
	_, err := m.client.CoreV1().Nodes().Patch(t.Context(), m.node, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (m modulesEnv) awaitReady(t *testing.T, name string) {
	t.Helper()
	m.awaitPod(t, name+" to be ready", func(pod *corev1.Pod) bool { return pod.Name == name && isReady(pod) })
}

// awaitPod waits until a pod of the node is as described.
func (m modulesEnv) awaitPod(t *testing.T, what string, is func(*corev1.Pod) bool) {
	t.Helper()
	t.Log("waiting for", what)
	m.follow(t, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == m.node && pod.DeletionTimestamp == nil && is(pod)
	})
}
