package integration

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	// realNode is the node whose containers really run gpu-node.
	realNode     = "gpu-real"
	toolkitApp   = "nvidia-container-toolkit-daemonset"
	driverApp    = "nvidia-driver-daemonset"
	driverProver = "driver-validation"
	// held is longer than a stage must last to be written.
	held = 30 * time.Second
)

// TestTheLadderFollowsTheMarkers: on one node each container runs the actual gpu-node, with the
// operator's manifests as they are. What the operator says of the node follows the markers that these
// processes write, keep and refuse.
func TestTheLadderFollowsTheMarkers(t *testing.T) {
	t.Parallel()
	gpuNode, standIn, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, bedOptions{
		nodes: 2, timing: simulator.DefaultTiming().Scale(0.2),
		programs: host.Programs{GPUNode: gpuNode, StandIn: standIn},
	})
	if err := b.sim.CanRunProcesses(); err != nil {
		t.Skip(err)
	}
	_, err = b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: realNode, Processes: true, Undiscovered: true})
	b.Expect(err).NotTo(HaveOccurred())
	b.sim.Break("driver", realNode, simulator.NeverReady)
	b.run()
	policy := b.samplePolicy()
	policy.Spec.Validator.Driver = &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "FAIL_AFTER", Value: "3s"}}}
	b.create(policy)

	for _, stage := range []struct {
		name string
		run  func(*realBed)
	}{
		{"without a driver nothing is proven", (*realBed).withoutDriver},
		{"without a device plugin all is proven but the plugin", (*realBed).withoutPlugin},
		{"all is proven and the node is ready", (*realBed).whole},
		{"a driver that breaks is reported in the words of gpu-node", (*realBed).brokenDriver},
		{"a driver that is replaced makes the markers stale", (*realBed).replacedDriver},
		{"a driver that is disabled and enabled again is proven anew", (*realBed).disabledDriver},
	} {
		if !t.Run(stage.name, func(t *testing.T) { stage.run(&realBed{bed: b.in(t), host: b.sim.Host(realNode), gpuNode: gpuNode}) }) {
			b.logProcesses()
			return
		}
	}
}

// realBed is a bed seen from the node that runs processes.
type realBed struct {
	*bed
	host *host.Host
	// gpuNode is the path of the program.
	gpuNode string
}

func (b *realBed) withoutDriver() {
	b.says(And(ContainSubstring("stage Driver"), ContainSubstring("nvidia-driver-ctr is not ready")))
	b.Expect(b.commands()).To(ContainElement(toolkitApp+"/"+driverProver), "the prover waits")
	b.marked()
	b.Expect(b.node(realNode).Labels).To(And(
		HaveKeyWithValue(labels.DiscoveryPCIPresent, "true"),
		HaveKeyWithValue(labels.DiscoveryOSID, "ubuntu"),
		HaveKeyWithValue(labels.DiscoveryKernel, "6.8.0-60-generic")), "as gpu-node discover found the machine")
	b.sim.Break("device-plugin", realNode, simulator.ImagePull)
	b.sim.Heal("driver", realNode)
}

func (b *realBed) withoutPlugin() {
	b.Eventually(b.present).WithTimeout(held).Should(ConsistOf(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA))
	b.says(ContainSubstring("stage DevicePlugin"))
	b.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA)
	b.Expect(b.environmentOf(toolkitApp)).To(ContainElements(
		"IS_HOST_DRIVER=false", "NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "DRIVER_ROOT_CTR_PATH=/driver-root",
		"RUNTIME=containerd"), "what the toolkit was started with")
	b.sim.Heal("device-plugin", realNode)
}

func (b *realBed) whole() {
	b.awaitReady(3)
	b.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
	b.says(ContainSubstring("GPUs can be used"))
	b.Expect(b.environmentOf(pluginName)).To(ContainElement("NVIDIA_DRIVER_ROOT=/run/nvidia/driver"))
}

// brokenDriver has the driver fail under a toolkit that proves it anew. The prover is killed once, and
// then left to itself.
func (b *realBed) brokenDriver() {
	const sentence = "the driver container's driver does not work: /usr/bin/nvidia-smi fails with exit status 9: " +
		"the driver's kernel module is not loaded"
	b.sim.Break("driver", realNode, simulator.DriverFails)
	b.deletePod(toolkitApp, realNode)
	b.Eventually(func() (string, error) { return b.host.Log(toolkitApp, driverProver) }).WithTimeout(held).
		Should(ContainSubstring(sentence))
	b.Expect(b.present()).NotTo(ContainElement(labels.MarkerDriver), "a prover takes the marker away before it proves")

	b.Expect(syscall.Kill(b.processOf(toolkitApp, driverProver).PID, syscall.SIGKILL)).To(Succeed())
	b.proverRuns(1, 137)
	b.Expect(b.present()).NotTo(ContainElement(labels.MarkerDriver), "one that was killed has proven nothing")

	b.says(And(ContainSubstring("stage Toolkit"), ContainSubstring(driverProver+": CrashLoopBackOff, exit code 1: "+sentence)))
	b.Eventually(b.degraded).WithTimeout(held).Should(ContainElement(ContainSubstring("exit code 1: the driver container's driver does not work")))
	b.sim.Heal("driver", realNode)
	b.awaitReady(3)
	b.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
}

// degraded lists what the policy says of nodes that have failed.
func (b *realBed) degraded() []string {
	var messages []string
	for _, node := range b.policy().Status.Nodes {
		if node.Reason == "CrashLoopBackOff" {
			messages = append(messages, node.Message)
		}
	}
	return messages
}

// proverRuns waits until the prover of the driver runs once more, after so many ends.
func (b *realBed) proverRuns(restarts, lastCode int32) {
	b.t.Helper()
	b.Eventually(func() []corev1.ContainerStatus { return b.initStatuses(toolkitApp) }).WithTimeout(held).Should(ContainElement(And(
		HaveField("Name", driverProver), HaveField("RestartCount", restarts), HaveField("State.Running", Not(BeNil())),
		HaveField("LastTerminationState.Terminated.ExitCode", lastCode))))
}

// replacedDriver deletes the driver's pod and holds up the next one.
func (b *realBed) replacedDriver() {
	before := b.podOn(driverApp, realNode)
	b.sim.Break("driver", realNode, simulator.NeverReady)
	b.deletePod(driverApp, realNode)
	b.says(ContainSubstring("stage Driver"))
	b.Expect(b.markerInstance(labels.MarkerToolkit)).To(BeEquivalentTo(before.UID), "it is still there")
	b.Expect(b.wait(labels.MarkerToolkit)).To(ContainSubstring("toolkit-ready is stale"), "and nobody trusts it")
	b.marked()

	b.sim.Heal("driver", realNode)
	b.awaitReady(3)
	after := b.podOn(driverApp, realNode)
	b.Expect(after.UID).NotTo(Equal(before.UID))
	b.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
	for _, m := range b.present() {
		b.Expect(b.markerInstance(m)).To(BeEquivalentTo(after.UID), "%s is of the new driver", m)
	}
}

// disabledDriver ends the driver by the spec, and has it back. Its module stays loaded meanwhile, so the new one has
// k8s-driver-manager restart what uses it.
func (b *realBed) disabledDriver() {
	before, user := b.podOn(driverApp, realNode), b.podOn(toolkitApp, realNode)
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Enabled = new(false) })
	b.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(b.client.List(b.t.Context(), pods, client.MatchingLabels{"app": driverApp})).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(Succeed())
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Enabled = new(true) })
	b.Eventually(func(g Gomega) {
		condition := nodeCondition(b.node(realNode))
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Message).To(ContainSubstring("GPUs can be used"))
		pods := &corev1.PodList{}
		g.Expect(b.client.List(b.t.Context(), pods, client.MatchingLabels{"app": toolkitApp})).To(Succeed())
		g.Expect(pods.Items).NotTo(ContainElement(HaveField("UID", user.UID)), "what used the driver is another pod")
		g.Expect(b.present()).To(ContainElements(labels.MarkerDriver, labels.MarkerToolkit, labels.MarkerPlugin))
		driver := b.podOn(driverApp, realNode)
		g.Expect(driver).NotTo(BeNil())
		g.Expect(b.markerInstance(labels.MarkerToolkit)).To(BeEquivalentTo(driver.UID))
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(Succeed())
	b.Expect(b.podOn(driverApp, realNode).UID).NotTo(Equal(before.UID))
}

// says waits until the condition of the node says so.
func (b *realBed) says(what types.GomegaMatcher) {
	b.t.Helper()
	b.Eventually(func() string {
		if condition := nodeCondition(b.node(realNode)); condition != nil {
			return condition.Reason + ": " + condition.Message
		}
		return ""
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(what)
}

// markers are those of the machine, as gpu-node reads them there.
func (b *realBed) markers() marker.Dir {
	return marker.Dir{Path: b.host.Path(labels.ValidationsDir), BootID: b.host.BootID()}
}

// wait has gpu-node wait for a marker on the machine, in vain, and returns what it says.
func (b *realBed) wait(m labels.Marker) string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), b.gpuNode, "wait", labels.WaitForFlag+string(m), "--timeout=100ms",
		"--dir="+b.host.Path(labels.ValidationsDir), "--boot-id-file="+b.host.Path(labels.BootIDFile)).CombinedOutput()
	b.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), "%s", out)
	return string(out)
}

// present lists the markers that gpu-node on the machine would trust.
func (b *realBed) present() []labels.Marker {
	var trusted []labels.Marker
	for _, m := range marker.Known {
		if _, err := b.markers().Read(m); err == nil {
			trusted = append(trusted, m)
		}
	}
	return trusted
}

// marked requires exactly these markers.
func (b *realBed) marked(want ...labels.Marker) {
	b.t.Helper()
	b.Expect(b.present()).To(ConsistOf(want))
}

// markerInstance is the driver instance with which a marker was written.
func (b *realBed) markerInstance(m labels.Marker) string {
	b.t.Helper()
	content, err := os.ReadFile(b.host.Path(labels.ValidationsDir) + "/" + m.File())
	b.Expect(err).NotTo(HaveOccurred())
	assignments, err := marker.Parse(content)
	b.Expect(err).NotTo(HaveOccurred())
	for _, a := range assignments {
		if a.Key == labels.DriverInstanceKey {
			return a.Value
		}
	}
	return ""
}

// commands are the containers whose processes run.
func (b *realBed) commands() []string {
	var names []string
	for _, p := range b.host.Processes() {
		names = append(names, p.App+"/"+p.Container)
	}
	return names
}

func (b *realBed) processOf(app, container string) *host.Process {
	b.t.Helper()
	for _, p := range b.host.Processes() {
		if p.App == app && p.Container == container {
			return p
		}
	}
	b.t.Fatalf("no process of container %s of %s, only %s", container, app, b.commands())
	return nil
}

// environmentOf is that of the program which gpu-node has become in the pod of this app.
func (b *realBed) environmentOf(app string) []string {
	for _, p := range b.host.Processes() {
		if env, became := p.Became(); p.App == app && became {
			return env
		}
	}
	return nil
}

func (b *realBed) initStatuses(app string) []corev1.ContainerStatus {
	if pod := b.podOn(app, realNode); pod != nil {
		return pod.Status.InitContainerStatuses
	}
	return nil
}

// logProcesses shows what the processes that still run have written.
func (b *bed) logProcesses() {
	machine := b.sim.Host(realNode)
	for _, p := range machine.Processes() {
		log, err := machine.Log(p.App, p.Container)
		b.t.Logf("%s/%s: %v\n%s", p.App, p.Container, err, tail(log, 10))
	}
}
