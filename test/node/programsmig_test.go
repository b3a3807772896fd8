//go:build linux

package node_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// Labels of GPU Feature Discovery.
const (
	memoryLabel   = "nvidia.com/gpu.memory"
	strategyLabel = "nvidia.com/mig.strategy"
	sliceLabel    = "nvidia.com/gpu.slices.gi"
	profileLabel  = "nvidia.com/mig-3g.40gb.count"
	replicasLabel = "nvidia.com/gpu.replicas"
)

// nvsmLabel selects the nodes of a program that is no operand.
const nvsmLabel = "nvidia.com/gpu.deploy.nvsm"

// checkProgramsSingle makes NVIDIA's MIG manager apply a layout of one profile, with the strategy single, and gives a
// MIG device to a pod.
func (b *env) checkProgramsSingle() {
	b.selectStrategy("single")
	before := b.containers(partitioned...)
	b.cut("all-1g.10gb", map[corev1.ResourceName]int{gpuResource: gpus * slices7}, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
	b.Expect(b.node(b).Labels).To(And(HaveKeyWithValue(strategyLabel, "single"), HaveKeyWithValue(memoryLabel, "9856"),
		HaveKeyWithValue(sliceLabel, "1")))
	b.Expect(b.containers(partitioned...)).To(Equal(before), "no other container is restarted")
	b.checkMIGDevice()
}

// checkMIGDevice runs a pod with one MIG device: it has the device nodes of its GPU and of both instances, and no other
// GPU.
func (b *env) checkMIGDevice() {
	b.t.Helper()
	const name = "slice"
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "work", Image: "example.com/pause:1", ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuResource: resource.MustParse("1")}},
			}},
		},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		g.Expect(b.clientPod(g, name).Status.ContainerStatuses).To(ConsistOf(HaveField("Ready", true)))
	}, "30s", "100ms").Should(Succeed(), b.describe)
	var ofSlice string
	for _, pid := range b.machine.Processes("/pause") {
		if nodes, _ := filepath.Glob(processRoot(pid) + "/dev/nvidia[0-9]"); len(nodes) > 0 {
			b.Expect(nodes).To(HaveLen(1))
			ofSlice = processRoot(pid)
		}
	}
	b.Expect(ofSlice).NotTo(BeEmpty(), "a pod has a GPU")
	capabilities, err := filepath.Glob(ofSlice + "/dev/nvidia-caps/nvidia-cap*")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(capabilities).To(HaveLen(2))
	b.endClients()
}

// checkFailedLayout selects a layout that the driver refuses, as a program uses the GPUs: the node is reported with the
// words of the MIG manager, and all operands come back. Then it selects the layout before, which there still is.
func (b *env) checkFailedLayout() {
	const inUse = "nvmlComputeInstanceDestroy=19"
	b.Expect(b.machine.ShowDriverFile(fakegpu.NVML, inUse)).To(Succeed())
	b.t.Cleanup(func() { b.Expect(b.machine.ShowDriverFile(fakegpu.NVML, "")).To(Succeed()) })
	seen := b.followLabels(layoutStateLabel, pluginLabel)
	b.label(layoutLabel, "all-2g.20gb")
	b.Eventually(func(g Gomega) {
		g.Expect(seen()[layoutStateLabel]).To(Equal([]string{"success", "pending", "failed"}))
		g.Expect(seen()[pluginLabel]).To(Equal([]string{"true", "paused-for-mig-change", "true"}))
		g.Expect(b.gpuReady(g)).To(And(HaveField("Status", corev1.ConditionFalse), HaveField("Message", And(
			ContainSubstring("MIG layout all-2g.20gb could not be applied"), ContainSubstring("ERROR_IN_USE")))))
	}, "90s", "100ms").Should(Succeed(), b.describe)
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus * slices7})
	b.label(layoutLabel, "all-1g.10gb")
	b.awaitState("success")
	b.awaitReady()
}

// checkUnknownLayout selects a layout that is not in the file: it is reported, and changes nothing. Then it selects the
// layout before.
func (b *env) checkUnknownLayout() {
	all := b.containers()
	seen := b.followLabels(layoutStateLabel, pluginLabel)
	b.label(layoutLabel, "all-8g.90gb")
	b.awaitState("failed")
	b.Eventually(func(g Gomega) {
		g.Expect(b.gpuReady(g)).To(And(HaveField("Status", corev1.ConditionFalse),
			HaveField("Message", ContainSubstring("all-8g.90gb"))))
	}, "30s", "100ms").Should(Succeed(), b.describe)
	b.Expect(seen()).To(Equal(map[string][]string{layoutStateLabel: {"success", "failed"}, pluginLabel: {"true"}}),
		"an unknown layout pauses no operand")
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus * slices7})
	b.Expect(b.containers()).To(Equal(all))
	b.label(layoutLabel, "all-1g.10gb")
	b.awaitState("success")
	b.awaitReady()
}

// awaitState waits for an outcome of the MIG manager.
func (b *env) awaitState(state string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		g.Expect(b.node(g).Labels).To(HaveKeyWithValue(layoutStateLabel, state))
	}, "30s", "50ms").Should(Succeed(), b.describe)
}

// checkProgramsMixed applies a layout of three profiles with the strategy mixed.
func (b *env) checkProgramsMixed() {
	cluster.SkipInSample(b.t)
	b.selectStrategy("mixed")
	before := b.containers(partitioned...)
	b.cut("all-balanced", map[corev1.ResourceName]int{
		"nvidia.com/mig-1g.10gb": 2 * gpus, "nvidia.com/mig-2g.20gb": gpus, "nvidia.com/mig-3g.40gb": gpus,
	}, "NVIDIA-H100-80GB-HBM3")
	b.Eventually(func(g Gomega) {
		g.Expect(b.node(g).Labels).To(And(HaveKeyWithValue(strategyLabel, "mixed"), HaveKeyWithValue(profileLabel, "4")))
	}, "30s", "100ms").Should(Succeed(), b.describe)
	b.Expect(b.containers(partitioned...)).To(Equal(before), "no other container is restarted")
}

// checkProgramsWhole makes the GPUs whole again.
func (b *env) checkProgramsWhole() {
	before := b.containers(partitioned...)
	b.cut("all-disabled", map[corev1.ResourceName]int{gpuResource: gpus}, "NVIDIA-H100-80GB-HBM3")
	b.Expect(b.containers(partitioned...)).To(Equal(before), "no other container is restarted")
	b.patchLabel(layoutLabel, "null")
	// The MIG manager writes the label of NVIDIA System Management, too; it stays, as others select nodes by it.
	b.Expect(b.node(b).Labels).To(HaveKeyWithValue(nvsmLabel, "true"))
	b.patchLabel(nvsmLabel, "null")
}

// checkKnown asserts that no program has called a function of NVML that the library does not have.
func (b *env) checkKnown() {
	// Else nothing could have been recorded.
	b.Expect(b.machine.Running(driverState)).To(BeADirectory())
	called, err := os.ReadFile(b.machine.Running(filepath.Join(driverState, fakegpu.Unknown)))
	b.Expect(errors.Is(err, fs.ErrNotExist)).To(BeTrue(), "%v: libnvidia-ml.so.1 does not have %s", err,
		strings.Fields(string(called)))
}
