//go:build linux

package node_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

const (
	layoutLabel      = "nvidia.com/mig.config"
	layoutStateLabel = "nvidia.com/mig.config.state"
	pluginLabel      = "nvidia.com/gpu.deploy.device-plugin"
	productLabel     = "nvidia.com/gpu.product"
	// slices7 is the number of MIG devices of the smallest profile on a GPU.
	slices7 = 7
)

// partitioned are the operands that leave a node while its GPUs are partitioned, and the validator, which validates
// them again.
var partitioned = []string{
	"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter", validatorApp,
}

// checkPartitions makes the MIG manager partition the GPUs, by the label of the node alone: into devices of one
// profile, into devices of three, and not at all. The operands that use them are paused meanwhile and come back, the
// kubelet advertises the MIG devices, and no other pod is affected. An unknown layout changes nothing.
func (b *env) checkPartitions() {
	b.selectStrategy("single")
	before := b.containers(partitioned...)
	b.cut("all-1g.10gb", map[corev1.ResourceName]int{gpuResource: gpus * slices7}, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
	b.checkUnknownLayout()
	b.Expect(b.containers(partitioned...)).To(Equal(before), "no other container is restarted")

	b.selectStrategy("mixed")
	b.cut("all-balanced", map[corev1.ResourceName]int{
		"nvidia.com/mig-1g.10gb": 2 * gpus, "nvidia.com/mig-2g.20gb": gpus, "nvidia.com/mig-3g.40gb": gpus,
	}, "NVIDIA-H100-80GB-HBM3")
	b.cut("all-disabled", map[corev1.ResourceName]int{gpuResource: gpus}, "NVIDIA-H100-80GB-HBM3")
	b.Expect(b.containers(partitioned...)).To(Equal(before), "no other container is restarted")
}

// selectStrategy selects how MIG devices are advertised.
func (b *env) selectStrategy(name string) {
	b.t.Helper()
	begin := time.Now()
	b.patchPolicy(map[string]any{"spec": map[string]any{"mig": map[string]any{"strategy": name}}})
	b.awaitReady()
	b.t.Logf("the strategy %s: all was ready after %s", name, since(begin))
}

// cut selects a layout, and waits until the node advertises these devices and no others, and is ready.
func (b *env) cut(layout string, devices map[corev1.ResourceName]int, product string) {
	b.t.Helper()
	seen := b.followLabels(layoutStateLabel, pluginLabel)
	begin := time.Now()
	b.label(layoutLabel, layout)
	b.Eventually(func(g Gomega) {
		states := seen()[layoutStateLabel]
		// The first value is the result of the layout before.
		g.Expect(states[max(0, len(states)-2):]).To(Equal([]string{"pending", "success"}))
		g.Expect(seen()[pluginLabel]).To(Equal([]string{"true", "paused-for-mig-change", "true"}))
	}, "60s", "50ms").Should(Succeed(), b.describe)
	done := since(begin)
	b.awaitDevices(devices)
	offered := since(begin)
	b.Eventually(func(g Gomega) {
		g.Expect(b.node(g).Labels).To(HaveKeyWithValue(productLabel, product))
		g.Expect(b.gpuReady(g).Status).To(Equal(corev1.ConditionTrue))
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
	}, "90s", "100ms").Should(Succeed(), b.describe)
	b.t.Logf("%s: the MIG manager was done after %s, the Node offered %v after %s, all was ready after %s",
		layout, done, devices, offered, since(begin))
}

// awaitDevices waits until the kubelet advertises these devices of the stack and no others, on its Node, too.
func (b *env) awaitDevices(wanted map[corev1.ResourceName]int) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		allocatable := map[corev1.ResourceName]int{}
		for name, quantity := range b.node(g).Status.Allocatable {
			if strings.HasPrefix(string(name), "nvidia.com/") && !quantity.IsZero() {
				allocatable[name] = int(quantity.Value())
			}
		}
		g.Expect(allocatable).To(Equal(wanted))
		g.Expect(b.devices(g)).To(Equal(wanted))
	}, "60s", "50ms").Should(Succeed(), b.describe)
}

func (b *env) node(g Gomega) *corev1.Node {
	object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return object
}

func (b *env) label(key, value string) {
	b.t.Helper()
	b.patchLabel(key, `"`+value+`"`)
}

func (b *env) patchLabel(key, value string) {
	b.t.Helper()
	patch := `{"metadata":{"labels":{"` + key + `":` + value + `}}}`
	_, err := b.client.CoreV1().
		Nodes().
		Patch(b.t.Context(), machineName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	b.Expect(err).NotTo(HaveOccurred())
}

// followLabels records the values of labels of the node one after the other, from now on to the end of the test.
func (b *env) followLabels(keys ...string) (seen func() map[string][]string) {
	b.t.Helper()
	return b.follow(func(node *corev1.Node) map[string]string {
		found := map[string]string{}
		for _, key := range keys {
			if value, there := node.Labels[key]; there {
				found[key] = value
			}
		}
		return found
	})
}

// follow records the values that read returns for the node, by their names, one after the other, from now on to the end
// of the test.
func (b *env) follow(read func(*corev1.Node) map[string]string) (seen func() map[string][]string) {
	b.t.Helper()
	ctx, stop := context.WithCancel(b.t.Context())
	values := map[string][]string{}
	var lock sync.Mutex
	note := func(node *corev1.Node) {
		lock.Lock()
		defer lock.Unlock()
		for name, value := range read(node) {
			if before := values[name]; len(before) == 0 || before[len(before)-1] != value {
				values[name] = append(before, value)
			}
		}
	}
	now := b.node(b)
	note(now)
	watch, err := b.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + machineName, ResourceVersion: now.ResourceVersion,
	})
	b.Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	group.Go(func() {
		for event := range watch.ResultChan() {
			if node, isNode := event.Object.(*corev1.Node); isNode {
				note(node)
			}
		}
	})
	b.t.Cleanup(func() { stop(); watch.Stop(); group.Wait() })
	return func() map[string][]string {
		lock.Lock()
		defer lock.Unlock()
		copied := map[string][]string{}
		for key, all := range values {
			copied[key] = slices.Clone(all)
		}
		return copied
	}
}
