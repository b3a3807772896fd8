//go:build linux

package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// Where the DRA driver has what it knows about claims, and describes the devices of each.
const (
	draCheckpoint = "/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json"
	draSpecs      = "/run/cdi/k8s.gpu.nvidia.com-claim_"
)

// TestNVIDIAsDRADriver runs NVIDIA's DRA driver in place of the device plugin, below the manifest of test/nvidia/dra,
// with a real kubelet and scheduler. Stand-ins play the rest, which the operator installs.
func TestNVIDIAsDRADriver(t *testing.T) {
	b := newEnv(t)
	defer b.logsIfFailed()
	b.loadNVIDIA()
	b.loadProgramDriver(playedDriver)
	b.showGPUs("h100")
	b.deployOperator(privileged)
	b.installDRADriver()
	begin := time.Now()
	policy := programsPolicy()
	policy.Spec.DevicePlugin = &v1.DevicePluginSpec{Enabled: new(false)}
	policy.Spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
	policy.Spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)}
	b.createPolicy(policy)
	b.stages(begin)
	b.awaitReady()
	runParts(b.run, []part[*env]{
		{"the node offers GPUs by claims", (*env).checkClaimsOffer},
		{"a pod has the GPU of its claim", (*env).checkClaim},
		{"an upgrade of the driver evicts it", (*env).checkUpgradeUnderClaim},
		{"nothing is left of the claim", (*env).checkClaimEnds},
	})
}

// loadProgramDriver loads the image of a version of the driver in which NVIDIA's programs find what they look for.
func (b *env) loadProgramDriver(version string) {
	b.t.Helper()
	image, err := node.ProgramDriverImage(os.Getenv(standInVariable), driverLibrary(b.t), version)
	b.Expect(err).NotTo(HaveOccurred())
	b.load(image)
}

// installDRADriver installs the DRA driver, which waits for the GPU driver.
func (b *env) installDRADriver() {
	b.t.Helper()
	image, err := node.DRAImage(os.Getenv(programsVariable))
	b.Expect(err).NotTo(HaveOccurred())
	b.load(image)
	b.installDRAObjects(dra.DriverRoot)
}

// installDRAObjects installs the DRA driver, whose image is loaded, for a GPU driver at root.
func (b *env) installDRAObjects(root string) {
	b.t.Helper()
	objects, err := dra.Objects(root)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(cluster.InstallObjects(b.t.Context(), b.cluster.Config, objects)).To(Succeed())
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Log(b.draLog())
		}
	})
}

// draLog returns the end of the DRA driver's log, from the machine's disk: the API server may be gone.
func (b *env) draLog() string {
	logs, _ := filepath.Glob(b.machine.Path("/var/log/pods/" + dra.Namespace + "_*/gpus/*.log"))
	var text strings.Builder
	for _, path := range logs {
		content, _ := os.ReadFile(path)
		text.Write(content[max(0, len(content)-6000):])
	}
	return text.String()
}

// checkClaimsOffer requires the devices of the GPUs, and that the operator says by whom and how they are offered.
func (b *env) checkClaimsOffer() {
	b.Eventually(func(g Gomega) {
		published, err := b.client.ResourceV1().ResourceSlices().List(b.t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(published.Items).To(HaveLen(1))
		g.Expect(published.Items[0].Spec.Pool.Name).To(Equal(machineName))
		found := map[string]string{}
		for i := range published.Items[0].Spec.Devices {
			device := &published.Items[0].Spec.Devices[i]
			found[device.Name] = dra.Describe(device)["resource.kubernetes.io/pciBusID"]
		}
		g.Expect(found).To(Equal(map[string]string{
			"gpu-0": "0000:07:00.0", "gpu-1": "0000:08:00.0", "gpu-2": "0000:09:00.0", "gpu-3": "0000:0a:00.0",
		}))
	}, "1m", "100ms").Should(Succeed(), b.draLog)
	b.awaitUsable(gpus)
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.Nodes).To(ConsistOf(
			HaveField("Offers", "GPUs by resource claims (DRA): not validated")), "%+v", policy.Status)
		g.Expect(b.gpuReady(g)).To(And(HaveField("Status", corev1.ConditionTrue), HaveField("Reason", v1.ReasonGPUReady),
			HaveField("Message", ContainSubstring("DaemonSet "+dra.Namespace+"/"+dra.Name))))
	}, "2m", "100ms").Should(Succeed(), b.describe)
}

// checkClaim runs a pod with a claim, and another one that takes the other GPUs.
func (b *env) checkClaim() {
	b.createTemplate(tenant, 1)
	b.runTenant(podWithClaim(tenant))
	claim := b.tenantClaim()
	device := claim.Status.Allocation.Devices.Results[0]
	b.Expect(device).To(And(HaveField("Driver", dra.Driver), HaveField("Pool", machineName)))
	own := b.expectDevice(claim)

	spec, err := os.ReadFile(b.machine.Running(draSpecs + string(claim.UID) + ".yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(spec)).To(And(ContainSubstring(string(claim.UID)+"-"+device.Device),
		ContainSubstring("/run/nvidia/driver/usr/bin/nvidia-smi"), Not(ContainSubstring("/driver-root"))))
	b.Expect(b.checkpoint(b)).To(And(ContainSubstring(string(claim.UID)), ContainSubstring("PrepareCompleted")))

	b.createTemplate("others", gpus-1)
	listed := b.runToEnd(podWithClaim("others"))
	b.Expect(strings.Count(listed, "NVIDIA H100")).To(Equal(gpus-1), listed)
	// The UUIDs end with the number of the device node.
	b.Expect(listed).NotTo(MatchRegexp("0" + own + `\)`))
}

// podWithClaim is a pod with a claim of the template.
func podWithClaim(template string) corev1.PodSpec {
	return corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &template}},
		Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}},
		}},
	}
}

// createTemplate creates a template for claims of whole GPUs.
func (b *env) createTemplate(name string, count int64) {
	b.t.Helper()
	_, err := b.client.ResourceV1().ResourceClaimTemplates(metav1.NamespaceDefault).Create(b.t.Context(),
		&resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: dra.Driver, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
				}}},
			}}},
		}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
}

// tenantClaim returns the claim of the tenant's pod, which runs.
func (b *env) tenantClaim() *resourcev1.ResourceClaim {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).
		List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + tenant})
	b.Expect(err).NotTo(HaveOccurred())
	live := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	b.Expect(live).To(HaveLen(1))
	b.Expect(live[0].Status.ResourceClaimStatuses).To(HaveLen(1))
	claim, err := b.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).
		Get(b.t.Context(), *live[0].Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(claim.Status.Allocation.Devices.Results).To(HaveLen(1))
	return claim
}

// tenantProcess returns the number of the tenant's process, the only one of its program with a GPU.
func (b *env) tenantProcess(g Gomega) int {
	var found []int
	for _, pid := range b.machine.Processes("/pause") {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/dev/nvidiactl", pid)); err == nil {
			found = append(found, pid)
		}
	}
	g.Expect(found).To(HaveLen(1))
	return found[0]
}

// expectDevice requires that the tenant has the device node of its claim's GPU alone, and returns the GPU's number.
func (b *env) expectDevice(claim *resourcev1.ResourceClaim) (number string) {
	b.t.Helper()
	number = strings.TrimPrefix(claim.Status.Allocation.Devices.Results[0].Device, "gpu-")
	dev := fmt.Sprintf("/proc/%d/root/dev/nvidia", b.tenantProcess(b))
	b.Expect(filepath.Glob(dev + "[0-9]*")).To(ConsistOf(dev + number))
	return number
}

// checkpoint returns what the DRA driver has on disk of the claims that it has prepared.
func (b *env) checkpoint(g Gomega) string {
	content, err := os.ReadFile(b.machine.Running(draCheckpoint))
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// checkUpgradeUnderClaim lets the operator upgrade the driver under the tenant: the budget that protects the pod is
// named, and without that the pod is evicted. Whether the next pod starts is up to the DRA driver, which keeps for
// minutes what it has read of the files of the old GPU driver.
func (b *env) checkUpgradeUnderClaim() {
	cluster.SkipInSample(b.t)
	// What was recorded goes with the old driver.
	b.checkKnown()
	b.loadProgramDriver(upgradedVersion)
	running := b.podsOf(metav1.NamespaceDefault, tenant)
	b.patchPolicy(map[string]any{"spec": map[string]any{"driver": map[string]any{
		"version": upgradedVersion, "upgradePolicy": map[string]any{"autoUpgrade": true},
	}}})
	b.awaitUpgrade(And(HaveField("Reason", v1.ReasonUpgradeBlocked),
		HaveField("Message", ContainSubstring(upgradeBlockedBy))), "1m")
	b.Expect(b.podsOf(metav1.NamespaceDefault, tenant)).To(Equal(running), "the pod is protected")
	b.Expect(b.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Delete(b.t.Context(), tenant,
		metav1.DeleteOptions{})).To(Succeed())
	begin := time.Now()
	b.awaitUpgraded()
	b.t.Logf("the driver was replaced and validated %s after the budget was removed", since(begin))
	b.Expect(b.podsOf(metav1.NamespaceDefault, tenant)).NotTo(ContainElements(running), "the pod was evicted")
}

// checkClaimEnds ends the tenant, and requires that its claim has left nothing on the machine.
func (b *env) checkClaimEnds() {
	b.Expect(b.client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(b.t.Context(), tenant,
		metav1.DeleteOptions{})).To(Succeed())
	b.Eventually(func(g Gomega) {
		claims, err := b.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).
			List(b.t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(claims.Items).To(BeEmpty())
		g.Expect(filepath.Glob(b.machine.Running(draSpecs + "*"))).To(BeEmpty())
		g.Expect(b.checkpoint(g)).NotTo(ContainSubstring("Prepare"))
	}, "1m", "100ms").Should(Succeed(), b.draLog)
	b.checkKnown()
}
