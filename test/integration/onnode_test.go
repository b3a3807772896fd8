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
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	// realNode is the node whose containers really run gpu-node.
	realNode     = "gpu-real"
	toolkitApp   = "nvidia-container-toolkit-daemonset"
	driverApp    = "nvidia-driver-daemonset"
	driverProver = "driver-validation"
	// held is longer than the dwell time.
	held = 30 * time.Second
)

// TestStagesFollowTheMarkers: on one node each container runs the real gpu-node, with the unchanged manifests of the
// operator. The node's stages follow the markers that these processes write, keep and refuse.
func TestStagesFollowTheMarkers(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	gpuNode, standIn, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, envOptions{
		nodes: 2, timing: simulator.DefaultTiming().Scale(0.2),
		programs: host.Programs{GPUNode: gpuNode, StandIn: standIn},
	})
	if err := e.sim.CanRunProcesses(); err != nil {
		needs.Unmet(t, needs.Root, err)
	}
	_, err = e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: realNode, Processes: true, Undiscovered: true})
	e.Expect(err).NotTo(HaveOccurred())
	e.sim.Break("driver", realNode, simulator.NeverReady)
	e.run()
	policy := e.samplePolicy()
	policy.Spec.Validator.Driver = &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "FAIL_AFTER", Value: "3s"}}}
	e.create(policy)

	for _, stage := range []struct {
		name string
		run  func(*realNodeEnv)
	}{
		{"without a driver nothing is validated", (*realNodeEnv).withoutDriver},
		{"without a device plugin everything but the plugin is validated", (*realNodeEnv).withoutPlugin},
		{"everything is validated and the node is ready", (*realNodeEnv).whole},
		{"a failing driver is reported with the message of gpu-node", (*realNodeEnv).brokenDriver},
		{"a replaced driver makes the markers stale", (*realNodeEnv).replacedDriver},
		{"a driver that has unloaded its modules is validated again", (*realNodeEnv).unloadedDriver},
		{"a driver that is disabled and re-enabled is validated again", (*realNodeEnv).disabledDriver},
	} {
		if !t.Run(stage.name, func(t *testing.T) {
			stage.run(&realNodeEnv{env: e.in(t), host: e.sim.Host(realNode), gpuNode: gpuNode})
		}) {
			e.logProcesses()
			return
		}
	}
}

// realNodeEnv is an env with the node that runs processes.
type realNodeEnv struct {
	*env
	host *host.Host
	// gpuNode is the path of the program.
	gpuNode string
}

func (e *realNodeEnv) withoutDriver() {
	e.reports(And(ContainSubstring("stage Driver"), ContainSubstring("nvidia-driver-ctr is not ready")))
	e.Expect(e.commands()).To(ContainElement(toolkitApp+"/"+driverProver), "the validation waits")
	e.marked()
	e.Expect(e.node(realNode).Labels).To(And(
		HaveKeyWithValue(labels.DiscoveryPCIPresent, "true"),
		HaveKeyWithValue(labels.DiscoveryOSID, "ubuntu"),
		HaveKeyWithValue(labels.DiscoveryKernel, "6.8.0-60-generic")), "as found by gpu-node discover")
	e.sim.Break("device-plugin", realNode, simulator.ImagePull)
	e.sim.Heal("driver", realNode)
}

func (e *realNodeEnv) withoutPlugin() {
	e.Eventually(e.present).WithTimeout(held).Should(ConsistOf(labels.MarkerDriver, labels.MarkerRuntime,
		labels.MarkerToolkit, labels.MarkerCUDA))
	e.reports(ContainSubstring("stage DevicePlugin"))
	e.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA)
	e.Expect(e.environmentOf(toolkitApp)).To(ContainElements(
		"IS_HOST_DRIVER=false", "NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "DRIVER_ROOT_CTR_PATH=/driver-root",
		"RUNTIME=containerd"), "what the toolkit was started with")
	e.sim.Heal("device-plugin", realNode)
}

func (e *realNodeEnv) whole() {
	e.awaitReady(3)
	e.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
	e.reports(ContainSubstring("GPUs can be used"))
	e.Expect(e.environmentOf(pluginName)).To(ContainElement("NVIDIA_DRIVER_ROOT=/run/nvidia/driver"))
}

// brokenDriver makes the driver fail under a toolkit that validates it again. The validating container is killed
// once, and then runs undisturbed.
func (e *realNodeEnv) brokenDriver() {
	const sentence = "the driver container's driver does not work: /usr/bin/nvidia-smi fails with exit status 9: " +
		"the driver's kernel module is not loaded"
	e.sim.Break("driver", realNode, simulator.DriverFails)
	e.deletePod(toolkitApp, realNode)
	e.Eventually(func() (string, error) { return e.host.Log(toolkitApp, driverProver) }).WithTimeout(held).
		Should(ContainSubstring(sentence))
	e.Expect(e.present()).NotTo(ContainElement(labels.MarkerDriver), "a validation removes the marker before it starts")

	e.Expect(syscall.Kill(e.processOf(toolkitApp, driverProver).PID, syscall.SIGKILL)).To(Succeed())
	e.proverRuns(1, 137)
	e.Expect(e.present()).NotTo(ContainElement(labels.MarkerDriver), "a killed validation writes no marker")

	e.reports(And(ContainSubstring("stage Toolkit"),
		ContainSubstring(driverProver+": CrashLoopBackOff, exit code 1: "+sentence)))
	e.Eventually(e.degraded).WithTimeout(held).
		Should(ContainElement(ContainSubstring("exit code 1: the driver container's driver does not work")))
	e.sim.Heal("driver", realNode)
	e.awaitReady(3)
	e.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
}

// degraded lists the failed nodes in the policy's status.
func (e *realNodeEnv) degraded() []string {
	var messages []string
	for _, node := range e.policy().Status.Nodes {
		if node.Reason == "CrashLoopBackOff" {
			messages = append(messages, node.Message)
		}
	}
	return messages
}

// proverRuns waits until the driver's validation runs again, after this number of restarts.
func (e *realNodeEnv) proverRuns(restarts, lastCode int32) {
	e.t.Helper()
	e.Eventually(func() []corev1.ContainerStatus {
		return e.initStatuses(toolkitApp)
	}).WithTimeout(held).Should(ContainElement(And(
		HaveField("Name", driverProver), HaveField("RestartCount", restarts), HaveField("State.Running", Not(BeNil())),
		HaveField("LastTerminationState.Terminated.ExitCode", lastCode))))
}

// replacedDriver deletes the driver's pod and delays the next one.
func (e *realNodeEnv) replacedDriver() {
	before := e.podOn(driverApp, realNode)
	e.sim.Break("driver", realNode, simulator.NeverReady)
	e.deletePod(driverApp, realNode)
	e.reports(ContainSubstring("stage Driver"))
	e.Expect(e.markerInstance(labels.MarkerToolkit)).To(BeEquivalentTo(before.UID), "it still exists")
	e.Expect(e.wait(labels.MarkerToolkit)).To(ContainSubstring("toolkit-ready is stale"), "and it is ignored")
	e.marked()

	e.sim.Heal("driver", realNode)
	e.awaitReady(3)
	after := e.podOn(driverApp, realNode)
	e.Expect(after.UID).NotTo(Equal(before.UID))
	e.marked(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit, labels.MarkerCUDA, labels.MarkerPlugin)
	for _, m := range e.present() {
		e.Expect(e.markerInstance(m)).To(BeEquivalentTo(after.UID), "%s is of the new driver", m)
	}
}

// unloadedDriver deletes the driver's pod where nothing uses a GPU, so that its modules go with it. k8s-driver-manager
// of the new pod then restarts nothing, and what has validated the earlier driver is replaced. What starts later works.
func (e *realNodeEnv) unloadedDriver() {
	e.Eventually(func() bool {
		return time.Since(readySince(e.podOn(toolkitApp, realNode))) > 2*time.Second &&
			time.Since(readySince(e.podOn(validatorApp, realNode))) > 2*time.Second
	}).WithTimeout(held).Should(BeTrue(), "times of pods have whole seconds")
	before, plugin := e.podOn(driverApp, realNode), e.podOn(pluginName, realNode)
	e.Expect(e.host.UnloadModules()).To(Succeed())
	e.deletePod(driverApp, realNode)
	e.Eventually(func(g Gomega) {
		driver := e.podOn(driverApp, realNode)
		g.Expect(driver).NotTo(BeNil())
		g.Expect(driver.UID).NotTo(Equal(before.UID))
		g.Expect(e.present()).To(ConsistOf(labels.MarkerDriver, labels.MarkerRuntime, labels.MarkerToolkit,
			labels.MarkerCUDA, labels.MarkerPlugin))
		g.Expect(e.markerInstance(labels.MarkerToolkit)).To(BeEquivalentTo(driver.UID))
	}).WithTimeout(2 * held).WithPolling(100 * time.Millisecond).Should(Succeed())
	e.Expect(e.podOn(pluginName, realNode).UID).To(Equal(plugin.UID), "nothing else is replaced")

	e.deletePod(pluginName, realNode)
	e.Eventually(func() apitypes.UID {
		if pod := e.podOn(pluginName, realNode); pod != nil && podReady(pod) {
			return pod.UID
		}
		return plugin.UID
	}).WithTimeout(held).ShouldNot(Equal(plugin.UID), "a device plugin that starts later gets ready")
	e.awaitReady(3)
}

// disabledDriver disables and re-enables the driver in the spec. Its module stays loaded meanwhile, so that
// k8s-driver-manager of the new pod restarts the pods that use it.
func (e *realNodeEnv) disabledDriver() {
	before, user := e.podOn(driverApp, realNode), e.podOn(toolkitApp, realNode)
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Enabled = new(false) })
	e.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(e.client.List(e.t.Context(), pods, client.MatchingLabels{"app": driverApp})).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(Succeed())
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Driver.Enabled = new(true) })
	e.Eventually(func(g Gomega) {
		condition := nodeCondition(e.node(realNode))
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Message).To(ContainSubstring("GPUs can be used"))
		pods := &corev1.PodList{}
		g.Expect(e.client.List(e.t.Context(), pods, client.MatchingLabels{"app": toolkitApp})).To(Succeed())
		g.Expect(pods.Items).NotTo(ContainElement(HaveField("UID", user.UID)), "the pods that used the driver are replaced")
		g.Expect(e.present()).To(ContainElements(labels.MarkerDriver, labels.MarkerToolkit, labels.MarkerPlugin))
		driver := e.podOn(driverApp, realNode)
		g.Expect(driver).NotTo(BeNil())
		g.Expect(e.markerInstance(labels.MarkerToolkit)).To(BeEquivalentTo(driver.UID))
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(Succeed())
	e.Expect(e.podOn(driverApp, realNode).UID).NotTo(Equal(before.UID))
}

// reports waits until the message of the node's condition matches.
func (e *realNodeEnv) reports(what types.GomegaMatcher) {
	e.t.Helper()
	e.Eventually(func() string {
		if condition := nodeCondition(e.node(realNode)); condition != nil {
			return condition.Reason + ": " + condition.Message
		}
		return ""
	}).WithTimeout(held).WithPolling(100 * time.Millisecond).Should(what)
}

// markers returns the directory of the machine's markers.
func (e *realNodeEnv) markers() marker.Dir {
	return marker.Dir{Path: e.host.Path(labels.ValidationsDir), BootID: e.host.BootID()}
}

// wait runs gpu-node wait for a marker that never appears, and returns its message.
func (e *realNodeEnv) wait(m labels.Marker) string {
	e.t.Helper()
	out, err := exec.CommandContext(e.t.Context(), e.gpuNode, "wait", labels.WaitForFlag+string(m), "--timeout=100ms",
		"--dir="+e.host.Path(labels.ValidationsDir), "--boot-id-file="+e.host.Path(labels.BootIDFile)).CombinedOutput()
	e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), "%s", out)
	return string(out)
}

// present lists the markers that gpu-node on the machine accepts.
func (e *realNodeEnv) present() []labels.Marker {
	var trusted []labels.Marker
	for _, m := range marker.Known {
		if _, err := e.markers().Read(m); err == nil {
			trusted = append(trusted, m)
		}
	}
	return trusted
}

// marked requires exactly these markers.
func (e *realNodeEnv) marked(want ...labels.Marker) {
	e.t.Helper()
	e.Expect(e.present()).To(ConsistOf(want))
}

// markerInstance returns the driver instance with which a marker was written.
func (e *realNodeEnv) markerInstance(m labels.Marker) string {
	e.t.Helper()
	content, err := os.ReadFile(e.host.Path(labels.ValidationsDir) + "/" + m.File())
	e.Expect(err).NotTo(HaveOccurred())
	assignments, err := marker.Parse(content)
	e.Expect(err).NotTo(HaveOccurred())
	for _, a := range assignments {
		if a.Key == labels.DriverInstanceKey {
			return a.Value
		}
	}
	return ""
}

// commands returns the containers whose processes run.
func (e *realNodeEnv) commands() []string {
	var names []string
	for _, p := range e.host.Processes() {
		names = append(names, p.App+"/"+p.Container)
	}
	return names
}

func (e *realNodeEnv) processOf(app, container string) *host.Process {
	e.t.Helper()
	for _, p := range e.host.Processes() {
		if p.App == app && p.Container == container {
			return p
		}
	}
	e.t.Fatalf("no process of container %s of %s, only %s", container, app, e.commands())
	return nil
}

// environmentOf returns the environment of the program that gpu-node has executed in the pod of this app.
func (e *realNodeEnv) environmentOf(app string) []string {
	for _, p := range e.host.Processes() {
		if env, became := p.Became(); p.App == app && became {
			return env
		}
	}
	return nil
}

func (e *realNodeEnv) initStatuses(app string) []corev1.ContainerStatus {
	if pod := e.podOn(app, realNode); pod != nil {
		return pod.Status.InitContainerStatuses
	}
	return nil
}

// logProcesses logs the output of the running processes.
func (e *env) logProcesses() {
	machine := e.sim.Host(realNode)
	for _, p := range machine.Processes() {
		log, err := machine.Log(p.App, p.Container)
		e.t.Logf("%s/%s: %v\n%s", p.App, p.Container, err, tail(log, 10))
	}
}
