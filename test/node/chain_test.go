//go:build linux

package node_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	gpuReady    = "nvidia.com/GPUReady"
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	policyPath  = "/apis/nvidia.com/v1/clusterpolicies"
	policyName  = "cluster-policy"
)

// samplePolicy is all of the defaults.
func samplePolicy() *v1.ClusterPolicy {
	return &v1.ClusterPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "ClusterPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName},
	}
}

func (b *env) createPolicy(policy *v1.ClusterPolicy) {
	b.t.Helper()
	content, err := json.Marshal(policy)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.client.CoreV1().RESTClient().Post().AbsPath(policyPath).Body(content).Do(b.t.Context()).Error()).
		To(Succeed())
}

func (b *env) policy() (*v1.ClusterPolicy, error) {
	content, err := b.client.CoreV1().RESTClient().Get().AbsPath(policyPath, policyName).DoRaw(context.Background())
	if err != nil {
		return nil, err
	}
	policy := &v1.ClusterPolicy{}
	return policy, json.Unmarshal(content, policy)
}

// stages follows the node's condition until it is true.
func (b *env) stages(begin time.Time) {
	b.t.Helper()
	const within = 3 * time.Minute
	ctx, cancel := context.WithTimeout(b.t.Context(), within)
	defer cancel()
	watch, err := b.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + machineName})
	b.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()
	last := corev1.NodeCondition{}
	for event := range watch.ResultChan() {
		object, ok := event.Object.(*corev1.Node)
		if !ok {
			continue
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type != gpuReady {
				continue
			}
			if condition.Message != last.Message || condition.Reason != last.Reason {
				b.t.Logf("%8s %s %s: %s", since(begin), condition.Status, condition.Reason, condition.Message)
			}
			if last = condition; condition.Status == corev1.ConditionTrue {
				return
			}
		}
	}
	b.t.Fatalf("the node is not ready for GPUs after %s: %s: %s\n%s", within, last.Reason, last.Message, b.describe())
}

// TestFromNothingToValidated runs the rendered manifests, unchanged, on a real kubelet, and again after a restart of
// the node.
func TestFromNothingToValidated(t *testing.T) {
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	begin := time.Now()
	written := b.followMarkers(begin)
	b.createPolicy(samplePolicy())
	b.stages(begin)
	t.Run("the policy is ready", func(t *testing.T) {
		b := b.in(t)
		b.Eventually(func(g Gomega) {
			policy, err := b.policy()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
		}, "90s", "200ms").Should(Succeed(), b.describe)
		t.Logf("the policy was ready after %s", since(begin))
	})
	b.logBreakdown(begin)
	t.Run("what waits is handed over", func(t *testing.T) {
		b := b.in(t)
		b.checkHandler()
		b.checkHandOvers(1)
	})
	t.Run("the kubelet allocates the GPUs", func(t *testing.T) { b.in(t).checkAllocation() })
	t.Run("the order is kept", func(t *testing.T) { b.in(t).checkOrder(begin, written) })
	t.Run("the operators at rest", func(t *testing.T) { b.in(t).checkMemoryAtRest() })
	t.Run("failures are reported", func(t *testing.T) { b.in(t).checkFailures(sampleRounds()) })
	t.Run("a restart of the node", func(t *testing.T) {
		cluster.SkipInSample(t)
		b.in(t).checkRestart()
	})
	t.Run("a replaced driver", func(t *testing.T) {
		cluster.SkipInSample(t)
		b.in(t).checkReplacedDriver()
	})
	t.Run("an upgraded driver", func(t *testing.T) {
		cluster.SkipInSample(t)
		b.in(t).checkUpgrade()
	})
}

// checkAllocation runs a pod on two of the GPUs, and checks which it sees.
func (b *env) checkAllocation() {
	object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(object.Status.Allocatable).To(HaveKeyWithValue(gpuResource, resource.MustParse("4")))
	log := b.runToEnd(corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuResource: resource.MustParse("2")}},
	}}})
	b.Expect(log).To(MatchRegexp(`^(GPU [01]: NVIDIA H100 80GB HBM3 \(UUID: GPU-[0-9-]+\)\n){2}$`))
}

// runToEnd runs a pod that lists the GPUs that its spec requests, and returns what it prints.
func (b *env) runToEnd(spec corev1.PodSpec) string {
	b.t.Helper()
	const name = "work"
	b.load(echo())
	container := &spec.Containers[0]
	container.Name, container.Image, container.Command = name, "example.com/echo:1", []string{"nvidia-smi", "-L"}
	container.Env = []corev1.EnvVar{{Name: "PATH", Value: "/usr/bin"}}
	spec.RestartPolicy = corev1.RestartPolicyNever
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
		metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		pod, err := pods.Get(b.t.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded), "%v", pod.Status)
	}, "30s", "50ms").Should(Succeed())
	log, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(b.t.Context())
	b.Expect(err).NotTo(HaveOccurred())
	return string(log)
}
