//go:build linux

package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// hostScene is a real node whose own system has the driver.
type hostScene struct {
	*env
	result hostResult
	// before is the machine before there is a policy, and config what containerd reads from its configuration then.
	before snapshot
	config string
}

// TestAHostDriver runs NVIDIA's own toolkit, device plugin and GPU Feature Discovery below the rendered manifests on a
// node that has the driver: the one of this computer, with its GPUs, or one that is played. It runs from the bundle of
// make gpu-bundle, in which everything is built, as a machine with GPUs may have neither Go nor a network.
func TestAHostDriver(t *testing.T) {
	if os.Getenv(imagesVariable) == "" {
		t.Skip("needs the bundle of make gpu-bundle; run make test-gpu-bundle")
	}
	s := &hostScene{env: &env{WithT: NewWithT(t), t: t}, result: hostResult{Output: map[string]string{}}}
	driver := s.driver()
	s.time("control plane, container runtime and node", func() {
		s.env = newEnvWith(t, cluster.Options{RealNodes: true}, node.Options{HostDriver: driver})
	})
	defer func() { s.logsIfFailed() }()
	s.time("images", s.loadImages)
	s.time("operator", func() {
		s.deployOperator(privileged)
		s.before, s.config = s.awaitSnapshot(), s.readRuntimeConfig()
	})
	s.time("from nothing to validated", func() {
		memory := watchMemory()
		begin := time.Now()
		s.createPolicy(hostDriverPolicy())
		s.stages(begin)
		s.awaitReady()
		s.logBreakdown(begin)
		s.addContainers(begin, memory())
	})
	runParts(s.run, []part[*hostScene]{
		{"a pod gets a GPU", (*hostScene).checkInjected},
		{"a pod computes", (*hostScene).checkComputes},
		{"labels", (*hostScene).checkLabels},
		{"shared by time-slicing", (*hostScene).checkShared},
		{"the health agent", (*hostScene).checkAgent},
		{"what the health agent costs", (*hostScene).checkAgentCost},
		{"MIG", (*hostScene).checkMIG},
		{"removed", (*hostScene).checkRemoved},
		{"a pod computes by a claim", (*hostScene).checkClaimed},
	})
}

// The files of a driver may be anywhere, and links in one folder may lead to libraries in another.
func TestTheDriverOfAComputerIsCopied(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for path, content := range map[string]string{
		"bin/nvidia-smi": "smi", "store/libcuda.so.1.2": "cuda", "lib/libnvidia-ml.so.1.2": "nvml", "lib/libother.so.1": "",
	} {
		g.Expect(os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, path), []byte(content), 0o755)).To(Succeed())
	}
	for link, target := range map[string]string{
		"libcuda.so": "libcuda.so.1", "libcuda.so.1": filepath.Join(dir, "store/libcuda.so.1.2"),
		"libnvidia-ml.so.1": "libnvidia-ml.so.1.2",
	} {
		g.Expect(os.Symlink(target, filepath.Join(dir, "lib", link))).To(Succeed())
	}
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(dir, "none")+":"+filepath.Join(dir, "lib"))
	copied := filepath.Join(dir, "copied")
	g.Expect(node.CopyDriver(copied)).To(Succeed())
	files := map[string]string{}
	g.Expect(filepath.WalkDir(copied, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, copied)] = string(content)
		return err
	})).To(Succeed())
	libraries := strings.TrimPrefix(node.LibraryDir, "/usr")
	g.Expect(files).To(Equal(map[string]string{
		"/bin/nvidia-smi": "smi", libraries + "/libcuda.so": "cuda", libraries + "/libcuda.so.1": "cuda",
		libraries + "/libcuda.so.1.2": "cuda", libraries + "/libnvidia-ml.so.1": "nvml",
		libraries + "/libnvidia-ml.so.1.2": "nvml",
	}))
}

// hostDriverPolicy has the operands whose programs are in the bundle: no driver, as the node has one, no DCGM, which is
// not published as a module, and no MIG manager, which would partition GPUs.
func hostDriverPolicy() *v1.ClusterPolicy {
	policy := samplePolicy()
	policy.Spec.Driver = &v1.DriverSpec{Enabled: new(false)}
	policy.Spec.DCGM = &v1.DCGMSpec{Enabled: new(false)}
	policy.Spec.DCGMExporter = &v1.DCGMExporterSpec{Enabled: new(false)}
	policy.Spec.MIGManager = &v1.MIGManagerSpec{Enabled: new(false)}
	policy.Spec.NodeStatusExporter = &v1.NodeStatusExporterSpec{Enabled: new(true)}
	return policy
}

// time adds a stage, which fails the whole test if it fails.
func (s *hostScene) time(name string, part func()) {
	s.t.Helper()
	at := len(s.result.Stages)
	s.result.Stages = append(s.result.Stages, hostStage{Name: name})
	// Written before and after each stage: the test may be ended at any time.
	s.write()
	begin := time.Now()
	resetPeak()
	defer func() {
		stage := &s.result.Stages[at]
		stage.Seconds, stage.Memory = since(begin).Seconds(), peak(sceneCgroup())
		stage.Passed = !s.t.Failed() && stage.NotRun == ""
		s.write()
		s.t.Logf("%s: %s", name, since(begin))
	}()
	part()
}

// run adds a stage that is a test of its own, and reports whether it has passed.
func (s *hostScene) run(name string, part func(*hostScene)) bool {
	whole := s.env
	defer func() { s.env = whole }()
	return whole.t.Run(name, func(t *testing.T) {
		s.env = whole.in(t)
		s.time(name, func() { part(s) })
	})
}

// write writes the results.
func (s *hostScene) write() {
	s.t.Helper()
	path := os.Getenv(resultsVariable)
	content, err := json.MarshalIndent(s.result, "", "  ")
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	costs := strings.TrimSuffix(path, ".json") + "-costs.txt"
	err = errors.Join(err, os.WriteFile(costs, []byte(s.result.costs()), 0o644))
	if err != nil {
		s.t.Errorf("write the results: %v", err)
	}
}

// driver returns the driver that the node is to have, and reads which GPUs it shows on the machine itself.
func (s *hostScene) driver() *node.HostDriver {
	s.t.Helper()
	if dir := os.Getenv(hostDriverVariable); dir != "" {
		s.result.Played, s.result.Driver = true, playedDriver
		for i := range gpus {
			// As the stand-in's nvidia-smi prints them.
			s.result.GPUs = append(s.result.GPUs, hostGPU{
				Name: "NVIDIA H100 80GB HBM3", UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i), MIG: modeOff,
			})
		}
		return &node.HostDriver{Dir: dir, Version: playedDriver}
	}
	list := exec.CommandContext(s.t.Context(), "nvidia-smi",
		"--query-gpu=name,uuid,mig.mode.current,persistence_mode,driver_version", "--format=csv,noheader")
	text, err := list.Output()
	s.Expect(err).NotTo(HaveOccurred(), "nvidia-smi works on this computer")
	for line := range strings.Lines(string(text)) {
		values := strings.Split(strings.TrimSpace(line), ", ")
		s.Expect(values).To(HaveLen(5), line)
		s.result.GPUs = append(s.result.GPUs, hostGPU{
			Name: values[0], UUID: values[1], MIG: values[2], Persistence: values[3],
		})
		s.result.Driver = values[4]
	}
	s.Expect(s.result.GPUs).NotTo(BeEmpty())
	dir := filepath.Join(node.Dir(), "driver")
	s.Expect(node.CopyDriver(dir)).To(Succeed())
	return &node.HostDriver{Dir: dir}
}

// loadImages loads the images of the operator and of NVIDIA's programs, and what a host has that these use.
func (s *hostScene) loadImages() {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv(imagesVariable), "*.json"))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(files).NotTo(BeEmpty())
	for _, path := range files {
		image, err := node.ReadImage(path)
		s.Expect(err).NotTo(HaveOccurred())
		s.load(image)
	}
	s.Expect(s.machine.InstallContainerd()).To(Succeed())
	if s.result.Played {
		s.showGPUs("h100")
	}
}

// addContainers adds when each container ran, and the most memory that it had, by the containers' IDs.
func (s *hostScene) addContainers(begin time.Time, memory map[string]int64) {
	s.t.Helper()
	for _, span := range s.spans() {
		container := hostContainer{
			App: span.pod, Container: span.container, Started: span.started.Sub(begin).Seconds(),
			Memory: memory[span.id],
		}
		if span.ended.Unix() > 0 {
			container.Ended = span.ended.Sub(begin).Seconds()
		}
		s.result.Containers = append(s.result.Containers, container)
	}
}

// checkInjected lets a pod with one GPU list what it sees.
func (s *hostScene) checkInjected() {
	s.createWork("list", "nvidia-smi", "-L")
	var uuids []string
	for _, gpu := range s.result.GPUs {
		uuids = append(uuids, gpu.UUID)
	}
	s.Expect(s.output("list")).To(MatchRegexp(`^GPU 0: .* \(UUID: (` + strings.Join(uuids, "|") + `)\)\n$`))
}

// checkComputes lets a pod with one GPU add numbers on it.
func (s *hostScene) checkComputes() {
	s.createWork("compute", "gpu-node-cuda")
	s.expectComputed("compute")
}

// expectComputed requires that a pod has added numbers on its GPU: on one, where the driver is real.
func (s *hostScene) expectComputed(name string) {
	s.t.Helper()
	const line = `GPU \d+ \(.*\): adds 10007 numbers, 2 times\n`
	output := s.output(name)
	if s.result.Played {
		// The played driver shows all GPUs in each container.
		s.Expect(output).To(MatchRegexp(`^(` + line + `){4}$`))
		return
	}
	s.Expect(output).To(MatchRegexp(`^` + line + `$`))
}

// createWork creates a pod with one GPU.
func (s *hostScene) createWork(name string, command ...string) {
	s.t.Helper()
	s.createPod(name, command, corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuResource: resource.MustParse("1")}},
	}}})
}

// createPod creates a pod with the resources of a spec in the operator's image, which has a C library, as the driver's
// programs need.
func (s *hostScene) createPod(name string, command []string, spec corev1.PodSpec) {
	s.t.Helper()
	spec.RestartPolicy = corev1.RestartPolicyNever
	container := &spec.Containers[0]
	container.Name, container.Image, container.Command = "work", operatorImage+":"+operatorTag, command
	_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Create(s.t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	s.Expect(err).NotTo(HaveOccurred())
}

// output waits until a pod has ended well, and returns what it has printed.
func (s *hostScene) output(name string) string {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(metav1.NamespaceDefault)
	log := func() string {
		text, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(s.t.Context())
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	s.Eventually(func(g Gomega) {
		pod, err := pods.Get(s.t.Context(), name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded), "%v", pod.Status)
	}, "60s", "50ms").Should(Succeed(), log)
	s.result.Output[name] = log()
	return s.result.Output[name]
}

// checkLabels waits for the labels of GPU Feature Discovery, and compares them with what nvidia-smi prints.
func (s *hostScene) checkLabels() {
	s.Eventually(func(g Gomega) {
		labels := s.node(g).Labels
		for key, value := range map[string]string{
			"gpu.product": strings.ReplaceAll(s.result.GPUs[0].Name, " ", "-"), "gpu.count": fmt.Sprint(len(s.result.GPUs)),
			"gpu.replicas": "1", "gpu.sharing-strategy": "none", "cuda.driver-version.full": s.result.Driver,
		} {
			g.Expect(labels).To(HaveKeyWithValue("nvidia.com/"+key, value))
		}
		for _, key := range []string{"gpu.memory", "gpu.family", "gpu.compute.major", "mig.capable"} {
			g.Expect(labels).To(HaveKey("nvidia.com/" + key))
		}
	}, "1m", "100ms").Should(Succeed(), s.describe)
}

// checkShared shares each GPU by two pods, which compute, and no more.
func (s *hostScene) checkShared() {
	all := len(s.result.GPUs)
	for _, step := range []struct{ replicas, devices int }{{2, 2 * all}, {0, all}} {
		s.patchPolicy(map[string]any{"spec": map[string]any{
			"sharing": map[string]any{"timeSlicing": map[string]any{"replicas": step.replicas}},
		}})
		s.awaitDevices(map[corev1.ResourceName]int{gpuResource: step.devices})
		s.awaitReady()
		if step.devices == all {
			continue
		}
		names := []string{"shared-a", "shared-b"}
		for _, name := range names {
			s.createWork(name, "gpu-node-cuda")
		}
		for _, name := range names {
			s.expectComputed(name)
		}
	}
}

// checkAgent turns the health agent on, which finds nothing wrong.
func (s *hostScene) checkAgent() {
	s.patchPolicy(map[string]any{"spec": map[string]any{
		"health": map[string]any{"agent": map[string]any{"enabled": true}},
	}})
	s.awaitHealth(corev1.ConditionTrue, v1.ReasonGPUsHealthy)
	s.awaitReady()
	s.result.AgentMemory = resident(s, s.process(onNode, agentCommand))
}

// checkRemoved deletes the policy, and requires that the machine is as before it. A real driver keeps device nodes, and
// the links to those while a program of the host uses it.
func (s *hostScene) checkRemoved() {
	if s.result.Played {
		s.checkKnown()
		// The toolkit makes those device nodes that the driver lacks. They are the driver's and stay with it.
		for _, made := range []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm-tools"} {
			s.Expect(s.before.Files).NotTo(HaveKey(made))
			s.before.Files[made] = "Dcrw-rw-rw-"
		}
		s.checkStackRemoved(s.before, s.config)
		return
	}
	begin := time.Now()
	s.Expect(s.client.CoreV1().RESTClient().Delete().AbsPath(policyPath, policyName).Do(s.t.Context()).Error()).
		To(Succeed())
	s.awaitRemoved(begin)
	s.Expect(s.machine.Path("/var/local/usr/nvidia/toolkit")).NotTo(BeADirectory())
}
