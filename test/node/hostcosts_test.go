//go:build linux

package node_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/node"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// persistenceVariable is set where the run may switch the persistence mode of the computer's GPUs, and back.
const persistenceVariable = "TEST_NODE_PERSISTENCE"

// The modes of a GPU, as nvidia-smi prints them.
const modeOn, modeOff = "Enabled", "Disabled"

// agentTime is for how long the CPU time of the health agent is taken: several of its rounds.
const agentTime = time.Minute

// notRun ends the stage, which cannot show anything on this machine.
func (s *hostScene) notRun(format string, args ...any) {
	s.t.Helper()
	stage := &s.result.Stages[len(s.result.Stages)-1]
	stage.NotRun = fmt.Sprintf(format, args...)
	s.t.Skip("not run: " + stage.NotRun)
}

// checkAgentCost takes the CPU time of the health agent in the GPUs' persistence mode, and, if that is allowed, in the
// other one.
func (s *hostScene) checkAgentCost() {
	if s.result.Played {
		s.notRun("a driver that is played costs nothing, and has no persistence mode")
	}
	found := s.result.GPUs[0].Persistence
	for _, gpu := range s.result.GPUs {
		s.Expect(gpu.Persistence).To(Equal(found), "the GPUs have one persistence mode")
	}
	s.takeAgentCost(found)
	other := map[string]string{modeOn: modeOff, modeOff: modeOn}[found]
	if os.Getenv(persistenceVariable) != "" && other != "" {
		defer s.setPersistence(found)
		s.setPersistence(other)
		s.takeAgentCost(other)
	}
}

// setPersistence switches the persistence mode of all GPUs of this computer.
func (s *hostScene) setPersistence(mode string) {
	s.t.Helper()
	number := map[string]string{modeOff: "0", modeOn: "1"}[mode]
	out, err := exec.CommandContext(context.WithoutCancel(s.t.Context()), "nvidia-smi", "-pm", number).CombinedOutput()
	s.Expect(err).NotTo(HaveOccurred(), string(out))
}

func (s *hostScene) takeAgentCost(persistence string) {
	s.t.Helper()
	agent := s.process(onNode, agentCommand)
	begin, cpu := time.Now(), usedCPU(s, agent)
	s.Consistently(func() error {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", agent))
		return err
	}, agentTime, "5s").Should(Succeed(), "the agent runs")
	s.result.Agent = append(s.result.Agent, hostAgent{
		Persistence: persistence, Seconds: since(begin).Seconds(), CPUSeconds: (usedCPU(s, agent) - cpu).Seconds(),
	})
}

// checkMIG reports whether the GPUs can be partitioned. The run changes the mode of none: the machine may need it.
func (s *hostScene) checkMIG() {
	modes := map[string]bool{}
	for _, gpu := range s.result.GPUs {
		modes[gpu.MIG] = true
	}
	switch {
	case s.result.Played:
		s.notRun("the driver is played; the tests of a played driver partition its GPUs")
	case modes[modeOn]:
		s.notRun("possible: MIG mode is on, for GPUs that are partitioned already; this run does not partition")
	case modes[modeOff]:
		s.notRun("possible: the GPUs have MIG mode, which is off; this run does not switch it")
	}
	s.notRun("not possible: nvidia-smi prints %q for the MIG mode", s.result.GPUs[0].MIG)
}

// checkClaimed installs the stack again, with NVIDIA's DRA driver in place of the device plugin, and lets a pod compute
// on the GPU of its claim.
func (s *hostScene) checkClaimed() {
	image, err := filepath.Glob(filepath.Join(os.Getenv(imagesVariable), "dra-driver*.json"))
	s.Expect(err).NotTo(HaveOccurred())
	if len(image) == 0 {
		s.notRun("the image of the DRA driver is not here; it is in an archive of its own, gpu-bundle-dra.tar.xz")
	}
	policy := hostDriverPolicy()
	policy.Spec.DevicePlugin = &v1.DevicePluginSpec{Enabled: new(false)}
	// Before the policy, as without it nothing offers the GPUs, once the kubelet has forgotten those of the device plugin.
	s.installDRAObjects("/")
	s.createPolicy(policy)
	s.awaitReady()
	const template, name = "one-gpu", "claimed"
	s.createTemplate(template, 1)
	s.createPod(name, []string{"gpu-node-cuda"}, podWithClaim(template))
	s.expectComputed(name)
	published, err := s.client.ResourceV1().ResourceSlices().List(s.t.Context(), metav1.ListOptions{})
	s.Expect(err).NotTo(HaveOccurred())
	var uuids []string
	for _, slice := range published.Items {
		s.Expect(slice.Spec.Driver).To(Equal(dra.Driver))
		for i := range slice.Spec.Devices {
			uuids = append(uuids, dra.Describe(&slice.Spec.Devices[i])["uuid"])
		}
	}
	if s.result.Played {
		// The played NVML has other UUIDs than the played nvidia-smi.
		s.Expect(uuids).To(HaveLen(len(s.result.GPUs)))
		return
	}
	var wanted []string
	for _, gpu := range s.result.GPUs {
		wanted = append(wanted, gpu.UUID)
	}
	s.Expect(uuids).To(ConsistOf(wanted))
}

// sceneCgroup is the cgroup of memory that all processes of the scene are in or below.
func sceneCgroup() string { return filepath.Join("/sys/fs/cgroup/memory", filepath.Base(node.Dir())) }

// peakFile has the most memory that a cgroup had; 0 written to it starts again.
const peakFile = "memory.max_usage_in_bytes"

// peak returns the most memory that a cgroup had, in bytes; 0 if it is gone.
func peak(group string) int64 {
	content, err := os.ReadFile(filepath.Join(group, peakFile))
	if err != nil {
		return 0
	}
	bytes, _ := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	return bytes
}

// resetPeak lets the scene's peak start at what it has now. Without the file there are no peaks, which is no failure.
func resetPeak() { _ = os.WriteFile(filepath.Join(sceneCgroup(), peakFile), []byte("0"), 0o644) }

// watchMemory reads the peaks of all cgroups of the scene, again and again, until the function that it returns is
// called: that returns the last ones, by the last parts of the cgroups' names, which for containers are their IDs.
// A container's cgroup goes soon after its end, so that its peak may have been more.
func watchMemory() func() map[string]int64 {
	stop, done := make(chan struct{}), make(chan map[string]int64)
	go func() {
		peaks := map[string]int64{}
		ticker := time.NewTicker(25 * time.Millisecond)
		defer ticker.Stop()
		for {
			addPeaks(peaks, sceneCgroup())
			select {
			case <-stop:
				done <- peaks
				return
			case <-ticker.C:
			}
		}
	}()
	return func() map[string]int64 {
		close(stop)
		return <-done
	}
}

// addPeaks adds the peaks of a cgroup and of those below it, some of which end meanwhile.
func addPeaks(peaks map[string]int64, group string) {
	_ = filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			peaks[entry.Name()] = max(peaks[entry.Name()], peak(path))
		}
		return nil
	})
}
