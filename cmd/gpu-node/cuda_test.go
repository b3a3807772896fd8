package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// cudaProgram builds gpu-node-cuda, as it is shipped.
func cudaProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu-node-cuda")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "../gpu-node-cuda")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestValidateCUDA(t *testing.T) {
	t.Parallel()
	stack, program := fakegpu.Build(t), cudaProgram(t)
	t.Run("writes its marker once a kernel runs", func(t *testing.T) {
		g := NewWithT(t)
		pod := newPod(t)
		wait := startUntilLogged(t, pod.command(t, "wait", "--for=cuda"), "waiting for cuda")
		validation := pod.command(t, "validate", "cuda", "--program="+program)
		validation.Env = stack.Environ("FAKE_GPUS=gpu mig2")
		out, err := validation.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		g.Expect(string(out)).To(ContainSubstring("GPU-10111213-1415-1617-1819-1a1b1c1d1e00"))
		g.Expect(string(out)).To(ContainSubstring("MIG-20212223-2425-2627-2829-2a2b2c2d2e02"))
		g.Expect(wait.exitCode(t)).To(Equal(0))
	})
	tests := map[string]struct {
		environ []string
		flags   []string
		want    string
	}{
		"reports what the GPU does wrong": {environ: []string{"FAKE_CUDA=wrong=7"}, flags: []string{"--program=" + program},
			want: "GPU 0 (NVIDIA A100-SXM4-40GB, GPU-10111213-1415-1617-1819-1a1b1c1d1e00, 0000:07:00.0): computes wrong " +
				"numbers: in round 1, element 7 of 10007 is "},
		"reports that the driver hangs": {environ: []string{"FAKE_CUDA=hang:cuLaunchKernel"},
			flags: []string{"--program=" + program, "--attempt-timeout=1s"},
			want:  program + " was stopped: it does not end within 1s; see the kernel log for Xid errors of the GPU"},
		"reports that its program is missing": {flags: []string{"--program=/no/gpu-node-cuda"},
			want: "/no/gpu-node-cuda does not exist; use an image of the operator that has it"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			pod := newPod(t)
			pod.put(t, "cuda-ready", "")
			validation := pod.command(t, append([]string{"validate", "cuda", "--timeout=3s"}, tc.flags...)...)
			validation.Env = stack.Environ(tc.environ...)
			g.Expect(validation.Run()).To(HaveOccurred())
			g.Expect(validation.ProcessState.ExitCode()).To(Equal(1))
			g.Expect(pod.message(t)).To(HavePrefix("cuda is not validated (timeout of 3s): " + tc.want))
			g.Expect(os.ReadFile(filepath.Join(pod.markers, "cuda.reason"))).To(BeEquivalentTo(pod.message(t)))
			g.Expect(filepath.Join(pod.markers, "cuda-ready")).NotTo(BeAnExistingFile(), "the marker of an earlier run")
		})
	}
}
