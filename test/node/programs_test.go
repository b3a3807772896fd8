//go:build linux

package node_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// playedDriver is the version of the driver that the played NVML is of.
const playedDriver = "580.95.05"

// driverState is where the played NVML has what all containers share: until the driver is unloaded.
const driverState = "/proc/driver/nvidia"

// programsPolicy is all of the defaults, with that driver. The MIG manager 0.13.1 does not know the variable with which
// later ones get the layouts that are shipped; its own is set to the same file.
func programsPolicy() *v1.ClusterPolicy {
	policy := samplePolicy()
	policy.Spec.Driver = &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: playedDriver}}
	policy.Spec.MIGManager = &v1.MIGManagerSpec{ContainerSpec: v1.ContainerSpec{
		Env: []v1.EnvVar{{Name: "CONFIG_FILE", Value: "/mig-parted-config/config-default.yaml"}},
	}}
	return policy
}

// loadPrograms loads the images of NVIDIA's programs, and what a host has that they use.
func (b *env) loadPrograms() {
	b.t.Helper()
	images, err := node.ProgramImages(
		os.Getenv(programsVariable), os.Getenv(standInVariable), driverLibrary(b.t), playedDriver)
	b.Expect(err).NotTo(HaveOccurred())
	for _, image := range images {
		b.load(image)
	}
	b.Expect(b.machine.InstallContainerd()).To(Succeed())
}

// showGPUs lets the driver's libraries show the GPUs of the machine, of this model and without faults.
func (b *env) showGPUs(model string) {
	b.t.Helper()
	for name, content := range map[string]string{
		fakegpu.GPUs: strings.Repeat("gpu ", gpus), fakegpu.Model: model, fakegpu.NVML: "", fakegpu.Events: "",
		fakegpu.State: driverState,
	} {
		b.Expect(b.machine.ShowDriverFile(name, content)).To(Succeed())
	}
}

// newPrograms returns a real node with NVIDIA's programs and the operator, before there is a policy. Its GPUs are of
// the model h100, which has MIG, or t4.
func newPrograms(t *testing.T, model string) *env {
	t.Helper()
	b := newEnvWith(t, cluster.Options{}, node.Options{Device: map[string]string{"h100": "2330", "t4": "1eb8"}[model]})
	// Without it the MIG manager changes nothing.
	stop, err := b.machine.ServeBus()
	b.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { b.Expect(stop()).To(Succeed()) })
	b.loadPrograms()
	b.showGPUs(model)
	b.deployOperator(privileged)
	return b
}

// logsIfFailed prints the ends of the logs of the operands' containers for a test that has failed. It must be deferred,
// since the control plane ends before the clean-ups of the test.
func (b *env) logsIfFailed() {
	if !b.t.Failed() {
		return
	}
	const lines = 25
	for _, pod := range b.pods() {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, previous := range []bool{true, false} {
				log, err := b.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
					Container: c.Name, Previous: previous, TailLines: new(int64(lines)),
				}).DoRaw(context.Background())
				if err == nil && len(log) > 0 && pod.Labels["app"] != account {
					b.t.Logf("%s of %s, previous=%t:\n%s", c.Name, pod.Name, previous, log)
				}
			}
		}
	}
}

// TestNVIDIAsPrograms runs NVIDIA's own programs below the rendered manifests, unchanged: its toolkit, device plugin,
// GPU Feature Discovery, MPS daemon and MIG manager. Only the driver is played, and of MPS the closed
// program nvidia-cuda-mps-control.
func TestNVIDIAsPrograms(t *testing.T) {
	b := newPrograms(t, "h100")
	defer b.logsIfFailed()
	before := b.awaitSnapshot()
	config := b.readRuntimeConfig()
	begin := time.Now()
	b.createPolicy(programsPolicy())
	b.stages(begin)
	b.awaitReady()
	b.expectNoRestarts(toolkit.app)
	t.Logf("the policy was ready after %s", since(begin))
	b.logBreakdown(begin)
	runParts(b.run, []part[*env]{
		{"the kubelet allocates the GPUs", (*env).checkAllocation},
		{"labels", (*env).checkDiscovered},
		{"shared by a ConfigMap, and under another name", (*env).checkProgramsSharing},
		{"chosen by the node's label", (*env).checkChosen},
		{"a GPU with an error", (*env).checkEvent},
		{"another version of the toolkit", (*env).checkToolkitUpgrade},
		{"shared by MPS", (*env).checkProgramsMPS},
		{"MIG devices of one profile", (*env).checkProgramsSingle},
		{"a layout that the driver refuses", (*env).checkFailedLayout},
		{"a layout that is not there", (*env).checkUnknownLayout},
		{"MIG devices of three profiles", (*env).checkProgramsMixed},
		{"whole GPUs again", (*env).checkProgramsWhole},
		{"all functions of NVML are known", (*env).checkKnown},
		{"the machine is as before", func(b *env) { b.checkStackRemoved(before, config) }},
	})
}

// checkDiscovered waits for the labels of GPU Feature Discovery, whose values are the driver's.
func (b *env) checkDiscovered() { b.expectDiscovered(nil) }

// expectDiscovered waits for the labels of whole H100 GPUs, with these changes.
func (b *env) expectDiscovered(changes map[string]string) {
	b.t.Helper()
	wanted := map[string]string{
		"gpu.product": "NVIDIA-H100-80GB-HBM3", "gpu.count": fmt.Sprint(gpus), "gpu.replicas": "1",
		"gpu.memory": "81559", "gpu.family": "hopper", "gpu.compute.major": "9", "gpu.compute.minor": "0",
		"gpu.mode": "compute", "gpu.sharing-strategy": "none", "mig.capable": "true", "mps.capable": "false",
		"cuda.driver-version.full": playedDriver, "vgpu.present": "false",
	}
	maps.Copy(wanted, changes)
	b.Eventually(func(g Gomega) {
		labels := b.node(g).Labels
		for key, value := range wanted {
			g.Expect(labels).To(HaveKeyWithValue("nvidia.com/"+key, value))
		}
	}, "1m", "100ms").Should(Succeed(), b.describe)
}

// checkWithoutMIG shares GPUs without MIG: a strategy and a layout of MIG have no effect, and no program for MIG is
// installed.
func (b *env) checkWithoutMIG() {
	b.selectStrategy("single")
	b.label(layoutLabel, "all-1g.10gb")
	labels := map[string]string{
		"gpu.product": "Tesla-T4", "gpu.memory": "15360", "gpu.family": "turing", "gpu.compute.major": "7",
		"gpu.compute.minor": "5", "mig.capable": "false", "mig.strategy": "single",
	}
	b.expectDiscovered(labels)
	b.share("GPUs without MIG", map[string]any{"timeSlicing": map[string]any{"replicas": 2}}, 2, time.Minute)
	maps.Copy(labels, map[string]string{
		"gpu.product": "Tesla-T4-SHARED", "gpu.replicas": "2", "gpu.sharing-strategy": "time-slicing",
	})
	b.expectDiscovered(labels)
	b.Expect(b.podsOf(namespace, partitions.app)).To(BeEmpty())
	b.Expect(b.node(b).Labels).NotTo(HaveKey(layoutStateLabel))
	b.Expect(b.gpuReady(b)).To(And(HaveField("Status", corev1.ConditionTrue),
		HaveField("Message", ContainSubstring("its GPUs do not support MIG"))))
	b.patchLabel(layoutLabel, "null")
}

// checkProgramsSharing shares the GPUs by a ConfigMap, then under another name, and no more.
func (b *env) checkProgramsSharing() {
	cluster.SkipInSample(b.t)
	b.checkSharing()
	b.patchLabel(configLabel, "null")
	for _, step := range []struct {
		sharing any
		devices map[corev1.ResourceName]int
	}{
		{
			map[string]any{"timeSlicing": map[string]any{"replicas": 2, "renameByDefault": true}},
			map[corev1.ResourceName]int{gpuResource + ".shared": 2 * gpus},
		},
		{nil, map[corev1.ResourceName]int{gpuResource: gpus}},
	} {
		b.patchPolicy(map[string]any{"spec": map[string]any{
			"sharing": step.sharing, "devicePlugin": map[string]any{"config": nil},
		}})
		b.awaitDevices(step.devices)
		b.awaitReady()
	}
}

// checkEvent lets NVML report an error of one GPU: the plugin withdraws it, the operator counts it as not usable, and a
// new plugin offers it again.
func (b *env) checkEvent() {
	begin := time.Now()
	b.Expect(b.machine.ShowDriverFile(fakegpu.Events, "1 79\n")).To(Succeed())
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus - 1})
	b.t.Logf("the Node had %d GPUs after %s", gpus-1, since(begin))
	b.Expect(b.node(b).Status.Capacity[gpuResource]).To(HaveField("Value()", int64(gpus)))
	b.awaitUsable(gpus - 1)
	b.t.Logf("the policy's status had it after %s", since(begin))
	b.replace(devicePlugin.app)
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus})
	b.awaitUsable(gpus)
	b.awaitReady()
}

// checkToolkitUpgrade gives the toolkit's image another version: its handler goes and comes, and what runs keeps
// running.
func (b *env) checkToolkitUpgrade() {
	const version = "v1.20.2"
	name, err := node.ImageName("container-toolkit")
	b.Expect(err).NotTo(HaveOccurred())
	repository, _, _ := strings.Cut(name, ":")
	b.Expect(b.machine.Tag(b.t.Context(), name, repository+":"+version)).To(Succeed())
	before := b.containers(toolkit.app, validatorApp)
	begin := time.Now()
	b.patchPolicy(map[string]any{"spec": map[string]any{"toolkit": map[string]any{"version": version}}})
	b.Eventually(func(g Gomega) {
		pods, err := b.client.CoreV1().Pods(namespace).
			List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + toolkit.app})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(HaveLen(1))
		g.Expect(pods.Items[0].Spec.Containers[0].Image).To(HaveSuffix(version))
		g.Expect(pods.Items[0].Status.ContainerStatuses).To(ConsistOf(HaveField("Ready", true)))
	}, "2m", "100ms").Should(Succeed(), b.describe)
	b.awaitReady()
	b.t.Logf("all was ready after %s", since(begin))
	b.Expect(b.containers(toolkit.app, validatorApp)).To(Equal(before), "no other container is restarted")
}

// part is a subtest of a node that several share.
type part[E any] struct {
	name  string
	check func(E)
}

// runParts runs parts one after the other, until one fails: it leaves the node as it is then, so that the next ones
// would fail too. run runs one, and reports whether it has passed.
func runParts[E any](run func(name string, check func(E)) bool, parts []part[E]) {
	for _, p := range parts {
		if !run(p.name, p.check) {
			return
		}
	}
}

// run runs a part as a test of its own, and reports whether it has passed.
func (b *env) run(name string, check func(*env)) bool {
	return b.t.Run(name, func(t *testing.T) { check(b.in(t)) })
}

// runtimeConfig is containerd's configuration, which NVIDIA's toolkit writes again each time, without its comments.
const runtimeConfig = "/etc/containerd/config.toml"

// checkStackRemoved deletes the policy, and requires that the machine is as before it. config is what containerd read
// from its configuration then.
func (b *env) checkStackRemoved(before snapshot, config string) {
	begin := time.Now()
	b.Expect(b.client.CoreV1().RESTClient().Delete().AbsPath(policyPath, policyName).Do(b.t.Context()).Error()).
		To(Succeed())
	b.awaitRemoved(begin)
	delete(before.Files, runtimeConfig)
	b.Eventually(func(g Gomega) {
		after := b.takeSnapshot(g)
		delete(after.Files, runtimeConfig)
		g.Expect(cmp.Diff(before, after)).To(BeEmpty())
	}, "30s", "500ms").Should(Succeed())
	b.Expect(cmp.Diff(config, b.readRuntimeConfig())).To(BeEmpty())
}

// readRuntimeConfig returns what containerd reads from its configuration file, in a form of its own.
func (b *env) readRuntimeConfig() string {
	b.t.Helper()
	dump := exec.CommandContext(b.t.Context(), filepath.Join(binaries(b.t), "containerd"),
		"--config="+b.machine.Running(runtimeConfig), "config", "dump")
	text, err := dump.Output()
	b.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// TestNVIDIAsProgramsInject runs the programs in each of the other ways in which GPUs come into containers, one of them
// on GPUs without MIG.
func TestNVIDIAsProgramsInject(t *testing.T) {
	for _, mode := range []struct {
		name, model string
		spec        v1.CDISpec
		// nfd lets Node Feature Discovery label the node at first, in place of node discovery.
		nfd bool
	}{
		{"by an NRI plugin", "t4", v1.CDISpec{Enabled: new(true), NRIPluginEnabled: new(true)}, false},
		{"by the runtime, without CDI", "h100", v1.CDISpec{Enabled: new(false)}, true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			if mode.nfd {
				cluster.SkipInSample(t)
			}
			b := newPrograms(t, mode.model)
			defer b.logsIfFailed()
			begin := time.Now()
			policy := programsPolicy()
			policy.Spec.CDI = &mode.spec
			if mode.nfd {
				policy.Spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
				b.installNFD(true)
			}
			b.createPolicy(policy)
			b.stages(begin)
			b.awaitReady()
			b.logBreakdown(begin)
			b.checkAllocation()
			if mode.model == "t4" {
				runParts(b.run, []part[*env]{{"GPUs without MIG", (*env).checkWithoutMIG}})
			}
			if mode.nfd {
				runParts(b.run, []part[*env]{
					{"Node Feature Discovery in place of node discovery", (*env).checkReplacesDiscovery},
					{"handed over to node discovery", (*env).checkHandedOver},
					{"Node Feature Discovery beside node discovery", (*env).checkBesideDiscovery},
				})
			}
			b.checkKnown()
		})
	}
}
