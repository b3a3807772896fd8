//go:build linux

package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

const (
	validatorApp   = "nvidia-operator-validator"
	recheckCommand = "recheck"
	// recheckInterval is that of the tests; the default is minutes.
	recheckInterval = 15 * time.Second
)

// lostGPU is the address of the machine's last GPU.
const lostGPU = "0000:0a:00.0"

// checkRecheck lets the driver lose a GPU, and find it again: the validator, which has no rights on the node, reports
// both, and no other container restarts.
func (b *env) checkRecheck() {
	b.awaitReady()
	b.expectNoRights(b.process(onNode, recheckCommand))
	before := b.containers(validatorApp)
	listed, elsewhere := b.machine.Running("/proc/driver/nvidia/gpus/"+lostGPU), b.machine.Running("/proc/driver/lost")

	begin := time.Now()
	b.Expect(os.Rename(listed, elsewhere)).To(Succeed())
	b.Eventually(b.gpuReady, "3m", "50ms").Should(And(
		HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "GPUsMissing"),
		HaveField("Message", ContainSubstring("%d of %d GPUs usable: 1 of %d GPUs lost since the validation: "+
			lostGPU+" is not listed by the driver", gpus-1, gpus, gpus))), b.describe)
	b.awaitUsable(gpus - 1)
	b.t.Logf("the loss of a GPU was reported after %s", since(begin))

	begin = time.Now()
	b.Expect(os.Rename(elsewhere, listed)).To(Succeed())
	// The kubelet restarts the container with growing pauses.
	b.Eventually(b.gpuReady, "6m", "50ms").Should(And(
		HaveField("Status", corev1.ConditionTrue), HaveField("Reason", v1.ReasonGPUReady)), b.describe)
	b.awaitUsable(gpus)
	b.t.Logf("its return was reported after %s", since(begin))
	b.awaitReady()
	b.Expect(b.containers(validatorApp)).To(Equal(before), "no other container is restarted")
}

// expectNoRights requires that a process sees the host's device nodes and can open none of them, is not root and has no
// capability.
func (b *env) expectNoRights(pid int) {
	b.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(strings.Split(string(status), "\n")).To(ContainElements("Uid:\t65532\t65532\t65532\t65532",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"))
	b.Expect(fmt.Sprintf("/proc/%d/root/host-dev/null", pid)).To(BeAnExistingFile())
	devices, err := os.ReadFile(filepath.Join(cgroupOf(b, pid, "devices"), "devices.list"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(devices)).To(And(ContainSubstring("c 1:3 rwm"), Not(ContainSubstring("a *:* rwm")),
		Not(ContainSubstring("c 195:"))))
}
