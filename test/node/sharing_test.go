//go:build linux

package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	configLabel = "nvidia.com/device-plugin.config"
	// statusPeriod is how often the kubelet checks whether to update its Node.
	statusPeriod = 10 * time.Second
)

// mostFollow limits how long the kubelet's device manager may use an old configuration. Where time is not judged, the
// machine may be busy.
func mostFollow() time.Duration {
	if cluster.FullCampaigns() {
		return 10 * time.Second
	}
	return time.Minute
}

// configured are the operands that read the device plugin's configuration.
var configured = []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", daemonApp}

// checkSharing shares the GPUs with the sample for that: by four; by two, once its ConfigMap has that; and not at all,
// once the node selects the other configuration. Pods that do not read it are not affected.
func (b *env) checkSharing() {
	policy, configs := b.sharingSample()
	configMaps := b.client.CoreV1().ConfigMaps(namespace)
	configs, err := configMaps.Create(b.t.Context(), configs, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.patchPolicy(map[string]any{"spec": map[string]any{"devicePlugin": policy.Spec.DevicePlugin}})
	b.expectShares("shared by four", time.Now(), 4, time.Minute)
	b.awaitReady()

	before := b.containers(configured...)
	for key, text := range configs.Data {
		configs.Data[key] = strings.ReplaceAll(text, "replicas: 4", "replicas: 2")
	}
	_, err = configMaps.Update(b.t.Context(), configs, metav1.UpdateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.expectShares("the ConfigMap has two", time.Now(), 2, mostFollow())
	b.awaitReady()
	b.Expect(b.containers(configured...)).To(Equal(before), "no other container is restarted")

	before = b.containers()
	b.label(configLabel, "exclusive")
	b.expectShares("the node chooses another", time.Now(), 1, mostFollow())
	b.awaitReady()
	b.Expect(b.containers()).To(Equal(before), "no container is restarted")
}

// checkTypedSharing shares the GPUs by spec.sharing: by four, by two, and not at all. Pods that do not read it are not
// affected.
func (b *env) checkTypedSharing() {
	// It would have no effect, which the node reports.
	b.patchLabel(configLabel, "null")
	before := b.containers(configured...)
	for _, shares := range []int{4, 2, 1} {
		block := map[string]any{"timeSlicing": map[string]any{"replicas": shares}}
		b.share(fmt.Sprintf("spec.sharing with %d", shares), block, shares, time.Minute)
		b.Expect(b.containers(configured...)).To(Equal(before), "no other container is restarted")
	}
}

// share sets spec.sharing in place of a ConfigMap, and waits until each GPU is advertised as often and all is ready.
func (b *env) share(what string, sharing map[string]any, shares int, within time.Duration) {
	b.t.Helper()
	begin := time.Now()
	whole := map[string]any{"timeSlicing": nil, "mps": nil}
	maps.Copy(whole, sharing)
	b.patchPolicy(map[string]any{"spec": map[string]any{
		"sharing": whole, "devicePlugin": map[string]any{"config": nil},
	}})
	b.expectShares(what, begin, shares, within)
	b.awaitReady()
	b.t.Logf("%s: all was ready after %s", what, since(begin))
}

// sharingSample returns the sample that users start from.
func (b *env) sharingSample() (*v1.ClusterPolicy, *corev1.ConfigMap) {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "config/samples/clusterpolicy-time-slicing.yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	documents := strings.Split(string(content), "\n---\n")
	b.Expect(documents).To(HaveLen(2))
	policy, configs := &v1.ClusterPolicy{}, &corev1.ConfigMap{}
	b.Expect(yaml.UnmarshalStrict([]byte(documents[0]), policy)).To(Succeed())
	b.Expect(yaml.UnmarshalStrict([]byte(documents[1]), configs)).To(Succeed())
	return policy, configs
}

func (b *env) patchPolicy(patch map[string]any) {
	b.t.Helper()
	content, err := json.Marshal(patch)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(policyPath, policyName).
		Body(content).Do(b.t.Context()).Error()).To(Succeed())
}

// expectShares requires that the kubelet's device manager advertises each GPU this often in time, and that the Node and
// the labels show it.
func (b *env) expectShares(what string, begin time.Time, shares int, within time.Duration) {
	b.t.Helper()
	b.Eventually(func(g Gomega) { g.Expect(b.devices(g)).To(HaveKeyWithValue(gpuResource, gpus*shares)) }, within, "20ms").
		Should(Succeed(), b.describe)
	offered := since(begin)
	b.Eventually(func(g Gomega) {
		node, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Allocatable[gpuResource]).To(HaveField("Value()", int64(gpus*shares)))
	}, within+2*statusPeriod, "20ms").Should(Succeed())
	b.t.Logf("%s: the device manager had %d after %s, the Node after %s", what, gpus*shares, offered, since(begin))
}

// devices returns how many devices of each resource the kubelet's device manager gives to pods, as it has them on disk.
func (b *env) devices(g Gomega) map[corev1.ResourceName]int {
	content, err := os.ReadFile(b.machine.Running("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"))
	g.Expect(err).NotTo(HaveOccurred())
	var checkpoint struct {
		Data struct {
			RegisteredDevices map[corev1.ResourceName][]string
		}
	}
	g.Expect(json.Unmarshal(content, &checkpoint)).To(Succeed())
	counts := map[corev1.ResourceName]int{}
	for name, devices := range checkpoint.Data.RegisteredDevices {
		if len(devices) > 0 {
			counts[name] = len(devices)
		}
	}
	return counts
}

// awaitReady waits until all operands run and the policy is ready. It has time for a program that ended once at its
// start, as NVIDIA's toolkit may: that is reported until the next one has run for a minute.
func (b *env) awaitReady() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
	}, "3m", "100ms").Should(Succeed(), b.describe)
}

// containers returns the containers of the operator's namespace which have started, by pod and name, without those of
// some apps.
func (b *env) containers(without ...string) map[string]string {
	b.t.Helper()
	found := map[string]string{}
	for _, pod := range b.pods() {
		if slices.Contains(without, pod.Labels["app"]) {
			continue
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			found[pod.Name+"/"+status.Name] = status.ContainerID
		}
	}
	b.Expect(slices.Collect(maps.Values(found))).NotTo(BeEmpty())
	return found
}
