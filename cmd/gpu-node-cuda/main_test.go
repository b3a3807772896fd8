package main_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// dir contains the program under test, as it is shipped, for both processors.
var dir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if dir, err = os.MkdirTemp("", "gpu-node-cuda"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		for _, arch := range []string{"amd64", "arm64"} {
			build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program(arch), ".")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build for %s: %v\n%s", arch, err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

func program(arch string) string { return filepath.Join(dir, "gpu-node-cuda-"+arch) }

// run runs the program of this processor.
func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), program(runtime.GOARCH), args...)
	command.Env, command.Stdout, command.Stderr = environ, &out, &errs
	if err := command.Run(); command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestTheProgramIsLinkedToTheCLibraryAlone(t *testing.T) {
	for arch, interpreter := range map[string]string{
		"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"} {
		t.Run(arch, func(t *testing.T) {
			g := NewWithT(t)
			binary, err := elf.Open(program(arch))
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = binary.Close() }()
			needed, err := binary.ImportedLibraries()
			g.Expect(err).NotTo(HaveOccurred())
			// libcuda.so.1 is loaded at run time, so that its absence can be reported.
			g.Expect(needed).To(ConsistOf("libc.so.6", "libdl.so.2", "libpthread.so.0"))
			content, err := binary.Section(".interp").Data()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(interpreter + "\x00"))
			info, err := os.Stat(program(arch))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Size()).To(BeNumerically("<", 3<<20))
			t.Logf("%d bytes", info.Size())
		})
	}
}

const (
	firstGPU  = "GPU 0 (NVIDIA A100-SXM4-40GB, GPU-10111213-1415-1617-1819-1a1b1c1d1e00, 0000:07:00.0): "
	secondGPU = "GPU 1 (NVIDIA A100-SXM4-40GB, GPU-20212223-2425-2627-2829-2a2b2c2d2e00, 0000:08:00.0): "
	works     = "adds 10007 numbers, 2 times\n"
)

func TestItRunsTheKernelOnEveryGPU(t *testing.T) {
	stack := fakegpu.Build(t)
	tests := map[string]struct {
		environ []string
		stdout  string
	}{
		"one GPU":  {stdout: firstGPU + works},
		"two GPUs": {environ: []string{"FAKE_GPUS=gpu gpu"}, stdout: firstGPU + works + secondGPU + works},
		"a MIG device": {environ: []string{"FAKE_GPUS=mig7"},
			stdout: "GPU 0 (NVIDIA A100-SXM4-40GB MIG 1g.5gb, MIG-10111213-1415-1617-1819-1a1b1c1d1e01, 0000:07:00.0): " +
				works},
		"a GPU whose memory is full, seen by the context": {
			environ: []string{"FAKE_GPUS=gpu gpu", "FAKE_CUDA=on=0 cuDevicePrimaryCtxRetain=2"},
			stdout: firstGPU + "is in use, not validated: cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)\n" +
				secondGPU + works},
		"a GPU whose memory is full, seen by the kernel": {
			environ: []string{"FAKE_CUDA=cuModuleLoadDataEx=2"},
			stdout:  firstGPU + "is in use, not validated: cuModuleLoadDataEx: CUDA_ERROR_OUT_OF_MEMORY (2)\n"},
		"a GPU whose memory is full, seen by a buffer": {
			environ: []string{"FAKE_CUDA=cuMemAlloc_v2=2"},
			stdout:  firstGPU + "is in use, not validated: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)\n"},
		"a GPU in the exclusive mode of another process": {
			environ: []string{"FAKE_CUDA=mode=3 cuDevicePrimaryCtxRetain=46"},
			stdout:  firstGPU + "is in use, not validated: cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE (46)\n"},
		"a GPU whose compute mode admits no process": {
			environ: []string{"FAKE_CUDA=mode=2 cuDevicePrimaryCtxRetain=46"},
			stdout:  firstGPU + "is in use, not validated: cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE (46)\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			start := time.Now()
			code, stdout, stderr := run(t, stack.Environ(tc.environ...))
			t.Logf("took %s", time.Since(start))
			g.Expect(code).To(Equal(0), stderr)
			g.Expect(stdout).To(Equal(tc.stdout))
			g.Expect(stderr).To(BeEmpty())
		})
	}
}

func TestEachFailureHasItsOwnMessage(t *testing.T) {
	stack := fakegpu.Build(t)
	old := fakegpu.Build(t, "cuDeviceGetUuid_v2").Environ()
	seen := map[string]string{}
	for name, tc := range map[string]struct {
		fake    string   // The value of FAKE_CUDA.
		environ []string // All of it, or an addition to the healthy stack's.
		args    []string
		err     string
	}{
		"no library": {environ: []string{"LD_LIBRARY_PATH="}, err: "the CUDA library cannot be loaded; see " +
			"the log of the container toolkit"},
		"no library at the path": {args: []string{"--library=/no/libcuda.so.1"}, err: "/no/libcuda.so.1: cannot open " +
			"shared object file"},
		"an old library": {environ: old, err: "install a driver of branch 470 or later"},
		"no GPU": {environ: []string{"FAKE_GPUS="},
			err: "cuInit fails with CUDA_ERROR_NO_DEVICE (100): there is no GPU for CUDA here; check NVIDIA_VISIBLE_DEVICES"},
		"no GPU in the count": {fake: "count=0", err: "CUDA shows no GPU"},
		"a count that fails": {fake: "cuDeviceGetCount=3", err: "cuDeviceGetCount fails with " +
			"CUDA_ERROR_NOT_INITIALIZED (3)"},
		"no memory of the host": {fake: "cuInit=2", err: "CUDA_ERROR_OUT_OF_MEMORY (2): there is no memory left; raise " +
			"the memory limit"},
		"a stub": {fake: "cuInit=34", err: "CUDA_ERROR_STUB_LIBRARY (34): this libcuda.so.1 is the stub " +
			"of a CUDA toolkit"},
		"no device node": {fake: "cuInit=304", err: "CUDA_ERROR_OPERATING_SYSTEM (304): a system call of the " +
			"driver fails; check that /dev/nvidia-uvm"},
		"no fabric manager": {fake: "cuInit=802", err: "CUDA_ERROR_SYSTEM_NOT_READY (802): the GPUs are not ready; " +
			"check that the fabric manager runs"},
		"a driver update": {fake: "cuInit=803", err: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): the kernel module " +
			"and the driver's libraries differ"},
		"cuda-compat": {fake: "cuInit=804", err: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804): the CUDA " +
			"compatibility libraries"},
		"no MPS": {fake: "cuInit=805", err: "CUDA_ERROR_MPS_CONNECTION_FAILED (805): the MPS server " +
			"cannot be reached"},
		"MPS that starts": {fake: "cuInit=807", err: "CUDA_ERROR_MPS_SERVER_NOT_READY (807): the MPS server is not " +
			"ready"},
		"no licence": {fake: "cuInit=801", err: "CUDA_ERROR_NOT_SUPPORTED (801): the GPU or its virtualisation"},
		"nvidia_uvm is missing": {fake: "cuInit=999", err: "CUDA_ERROR_UNKNOWN (999): unknown to the driver itself; " +
			"check that the module nvidia_uvm is loaded"},
		"a code without a name": {fake: "cuInit=4711", err: "cuInit fails with an error without a name (4711): see the " +
			"kernel log"},
		"a GPU that cannot be opened": {fake: "cuDeviceGet=101",
			err: "GPU 0 cannot be identified: cuDeviceGet fails with CUDA_ERROR_INVALID_DEVICE (101): a GPU that is listed"},
		"a GPU without a name": {fake: "cuDeviceGetName=999", err: "GPU 0 cannot be identified: cuDeviceGetName fails"},
		"a GPU without an id": {fake: "cuDeviceGetUuid_v2=999", err: "GPU 0 cannot be identified: " +
			"cuDeviceGetUuid_v2 fails"},
		"a GPU without an address": {fake: "cuDeviceGetPCIBusId=999", err: "GPU 0 cannot be identified: " +
			"cuDeviceGetPCIBusId fails"},
		"a GPU that refuses work": {fake: "cuDevicePrimaryCtxRetain=46", err: "cuDevicePrimaryCtxRetain fails with " +
			"CUDA_ERROR_DEVICE_UNAVAILABLE (46): the GPU refuses work; see the kernel log"},
		"a context that is corrupt": {fake: "cuDevicePrimaryCtxRetain=214", err: "CUDA_ERROR_ECC_UNCORRECTABLE (214): " +
			"the GPU's memory has an error"},
		"a context not usable": {fake: "cuCtxSetCurrent=201", err: "cuCtxSetCurrent fails with " +
			"CUDA_ERROR_INVALID_CONTEXT (201)"},
		"an unknown GPU": {fake: "cuModuleLoadDataEx=209", err: "CUDA_ERROR_NO_BINARY_FOR_GPU (209): the " +
			"driver does not support this GPU"},
		"a kernel that is refused": {fake: "cuModuleLoadDataEx=218",
			err: `CUDA_ERROR_INVALID_PTX (218): the driver's compiler refuses the kernel; reinstall the driver, whose files ` +
				`may be of several versions (the compiler reports "ptx input, line 5; fatal: unsupported .version")`},
		"no compiler": {fake: "cuModuleLoadDataEx=221", err: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): the " +
			"driver's compiler, libnvidia-ptxjitcompiler.so.1, is not in this container"},
		"a kernel that is too new": {fake: "cuModuleLoadDataEx=222", err: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): " +
			"the driver is too old"},
		"a compiler that is off": {fake: "cuModuleLoadDataEx=223", err: "CUDA_ERROR_JIT_COMPILATION_DISABLED (223): " +
			"the environment variable CUDA_DISABLE_JIT"},
		"a kernel that is missing": {fake: "cuModuleGetFunction=500", err: "cuModuleGetFunction fails with " +
			"CUDA_ERROR_NOT_FOUND (500)"},
		"no buffer": {fake: "cuMemAlloc_v2=999", err: "cuMemAlloc_v2 fails with CUDA_ERROR_UNKNOWN (999)"},
		"a copy to the GPU": {fake: "cuMemcpyHtoD_v2=719", err: "cuMemcpyHtoD_v2 fails with " +
			"CUDA_ERROR_LAUNCH_FAILED (719)"},
		"a copy from the GPU": {fake: "cuMemcpyDtoH_v2=719", err: "cuMemcpyDtoH_v2 fails with " +
			"CUDA_ERROR_LAUNCH_FAILED (719)"},
		"a launch that fails": {fake: "cuLaunchKernel=719", err: "cuLaunchKernel fails with " +
			"CUDA_ERROR_LAUNCH_FAILED (719): see the kernel log"},
		"an illegal address": {fake: "cuCtxSynchronize=700", err: "cuCtxSynchronize fails with " +
			"CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
		"a kernel without end": {fake: "cuCtxSynchronize=702", err: "CUDA_ERROR_LAUNCH_TIMEOUT (702): the kernel " +
			"does not end in time"},
		"a broken NVLink": {fake: "cuCtxSynchronize=220", err: "CUDA_ERROR_NVLINK_UNCORRECTABLE (220): the " +
			"NVLink of the GPU"},
		"a wrong bit": {fake: "wrong=10006", err: firstGPU + "computes wrong numbers: in round 1, element " +
			"10006 of 10007 is 30018.752 where 10006.5 + 20012.25 is 30018.75; see the kernel log"},
		"a kernel that never runs":  {fake: "launches=0", err: "in round 1, element 0 of 10007 is NaN"},
		"a kernel that runs once":   {fake: "launches=1", err: "in round 2, element 0 of 10007 is NaN"},
		"a kernel that stops early": {fake: "threads=5000", err: "in round 1, element 5000 of 10007 is NaN"},
		"a kernel without bound": {fake: "overrun", err: "writes beyond its data: in round 1, element 233 after the " +
			"last of 10007 is 1"},
		"one GPU of two": {fake: "on=1 wrong=0", environ: []string{"FAKE_GPUS=gpu gpu"},
			err: secondGPU + "computes wrong numbers: in round 1, element 0"},
		"two GPUs of three": {fake: "wrong=1", environ: []string{"FAKE_GPUS=mig0 gpu gpu"},
			err: "have it replaced if this repeats (of 2 GPUs, these fail: 0, 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			environ := append(stack.Environ("FAKE_CUDA="+tc.fake), tc.environ...)
			code, _, stderr := run(t, environ, tc.args...)
			g.Expect(code).To(Equal(1), stderr)
			g.Expect(stderr).To(ContainSubstring(tc.err))
			g.Expect(strings.Count(stderr, "\n")).To(Equal(1), stderr)
			g.Expect(seen).NotTo(HaveKey(stderr), "another failure has the same message")
			seen[stderr] = name
		})
	}
}

func TestMIGModeWithoutDevicesIsNamedAsACause(t *testing.T) {
	g := NewWithT(t)
	code, _, stderr := run(t, fakegpu.Build(t).Environ("FAKE_GPUS=mig0"))
	g.Expect(code).To(Equal(1))
	g.Expect(stderr).To(ContainSubstring("where MIG is enabled that MIG devices exist"))
}

func TestAGPUThatIsUnavailableForNoKnownReasonFails(t *testing.T) {
	g := NewWithT(t)
	code, _, stderr := run(t,
		fakegpu.Build(t).Environ("FAKE_CUDA=mode=3 cuDeviceGetAttribute=1 cuDevicePrimaryCtxRetain=46"))
	g.Expect(code).To(Equal(1))
	g.Expect(stderr).To(ContainSubstring("the GPU refuses work"))
}

func TestAGPUThatFailsDoesNotHideOthersThatWork(t *testing.T) {
	g := NewWithT(t)
	stack := fakegpu.Build(t)
	code, stdout, stderr := run(t, stack.Environ("FAKE_GPUS=gpu gpu", "FAKE_CUDA=on=0 cuCtxSynchronize=719"))
	g.Expect(code).To(Equal(1))
	g.Expect(stdout).To(Equal(secondGPU + works))
	g.Expect(stderr).To(HavePrefix(firstGPU))
}

func TestTheLibraryCanBeNamed(t *testing.T) {
	g := NewWithT(t)
	stack := fakegpu.Build(t)
	code, stdout, stderr := run(t, nil, "--library="+filepath.Join(stack.Lib, "libcuda.so.1"))
	g.Expect(code).To(Equal(0), stderr)
	g.Expect(stdout).To(Equal(firstGPU + works))
}

// A call into the driver cannot be interrupted from inside the process; only SIGKILL ends it.
func TestADriverThatHangsCanBeKilled(t *testing.T) {
	g := NewWithT(t)
	stack := fakegpu.Build(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, program(runtime.GOARCH))
	hangs := filepath.Join(t.TempDir(), "hangs")
	command.Env = stack.Environ("FAKE_CUDA=hang:cuCtxSynchronize", fakegpu.Hangs+"="+hangs)
	g.Expect(command.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	g.Eventually(hangs, "1m").Should(BeAnExistingFile())
	g.Consistently(ended, "300ms").ShouldNot(Receive())
	cancel()
	g.Eventually(ended, "1m").Should(Receive(MatchError("signal: killed")))
}

func TestUsageErrorsExitWith2(t *testing.T) {
	for _, arg := range []string{"gpu0", "--no-such-flag"} {
		g := NewWithT(t)
		code, stdout, stderr := run(t, nil, arg)
		g.Expect(code).To(Equal(2))
		g.Expect(stdout).To(BeEmpty())
		g.Expect(stderr).To(MatchRegexp(regexp.QuoteMeta(strings.TrimLeft(arg, "-"))))
	}
}
