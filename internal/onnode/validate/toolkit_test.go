package validate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// inContainer sets the environment of a container into which the stack was injected, with these additional variables.
func inContainer(t *testing.T, stack fakegpu.Stack, variables map[string]string) {
	t.Helper()
	t.Setenv("PATH", stack.Bin)
	t.Setenv("LD_LIBRARY_PATH", stack.Lib)
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// skipWithNVML skips a test for which the dynamic loader must not find libnvidia-ml.so.1. On a machine with a driver it
// does.
func skipWithNVML(t *testing.T) {
	t.Helper()
	known, err := exec.CommandContext(t.Context(), "ldconfig", "-p").Output()
	if err == nil && bytes.Contains(known, []byte("libnvidia-ml.so.1")) {
		t.Skip("this machine has libnvidia-ml.so.1")
	}
}

func TestToolkit(t *testing.T) {
	stack := fakegpu.Build(t)
	nvml := func(faults string) map[string]string { return map[string]string{fakegpu.NVML: faults} }
	tests := map[string]struct {
		variables map[string]string
		smi       string // Replaces nvidia-smi if not empty.
		err       string // Empty for success.
	}{
		"one GPU":     {},
		"eight GPUs":  {variables: map[string]string{fakegpu.GPUs: "gpu gpu gpu gpu gpu gpu gpu gpu"}},
		"MIG devices": {variables: map[string]string{fakegpu.GPUs: "mig7 mig0"}},
		"no nvidia-smi": {
			variables: map[string]string{"PATH": "/no/such/directory"},
			err:       "injected no nvidia-smi into this container; see the log of the container toolkit",
		},
		"no loader": {smi: "#!/no/such/loader\n", err: "use an image of the operator that has a C library"},
		"no NVML": {
			variables: map[string]string{"LD_LIBRARY_PATH": ""},
			err: "fails with exit status 12: the container runtime has injected nvidia-smi into this container, but not " +
				"libnvidia-ml.so.1; restart the container toolkit",
		},
		"another NVML": {
			variables: nvml("nvmlInit_v2=18"),
			err: "fails with exit status 18: the libraries in this container are of another version than the kernel " +
				"module; after a driver update restart the container toolkit",
		},
		"no driver": {
			variables: nvml("nvmlInit_v2=9"),
			err:       "fails with exit status 9: the driver cannot be reached from this container",
		},
		"no permission": {
			variables: nvml("nvmlInit_v2=4"),
			err: "fails with exit status 4: the container may not open the GPUs' device nodes; check that the links in " +
				"/dev/char",
		},
		"an unknown error": {
			variables: nvml("nvmlInit_v2=999"),
			err:       "fails with exit status 255: internal error of the driver",
		},
		"no GPU": {
			variables: map[string]string{fakegpu.GPUs: ""},
			err:       "fails with exit status 6: no GPU was injected into this container; check NVIDIA_VISIBLE_DEVICES",
		},
		"a GPU that is lost": {
			variables: map[string]string{
				fakegpu.GPUs: "gpu gpu",
				fakegpu.NVML: "on=1 nvmlDeviceGetHandleByIndex_v2=15",
			},
			err: "GPU 0000:08:00.0 has fallen off the bus",
		},
		"a lost GPU, exit 0": {
			smi: "#!/bin/sh\necho 'Unable to determine the device handle for gpu 0000:3B:00.0: Unknown Error'\n",
			err: "GPU 0000:3b:00.0 has fallen off the bus",
		},
		"a list without a GPU": {
			smi: "#!/bin/sh\necho 'No devices found.'\n",
			err: "lists no GPU; check NVIDIA_VISIBLE_DEVICES",
		},
		"a GPU without a UUID": {
			smi: "#!/bin/sh\necho 'GPU 0: ERR!'\n",
			err: `lists a GPU without its UUID, "GPU 0: ERR!"`,
		},
		"a crash": {
			variables: nvml("crash:nvmlInit_v2"),
			err:       "nvidia-smi fails with signal: segmentation fault",
		},
	}
	seen := map[string]string{}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if path, set := tc.variables["LD_LIBRARY_PATH"]; set && path == "" {
				skipWithNVML(t)
			}
			inContainer(t, stack, tc.variables)
			if tc.smi != "" {
				dir := t.TempDir()
				program(t, filepath.Join(dir, "nvidia-smi"), tc.smi)
				t.Setenv("PATH", dir)
			}
			_, err := Toolkit(t.Context())
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(seen).NotTo(HaveKey(err.Error()), "another failure has the same message")
			seen[err.Error()] = name
		})
	}
}

func TestToolkitReportsThatNvidiaSMIHangs(t *testing.T) {
	g := NewWithT(t)
	inContainer(t, fakegpu.Build(t), map[string]string{fakegpu.NVML: "hang:nvmlInit_v2"})
	_, err := Toolkit(untilItHangs(t))
	g.Expect(err).To(MatchError(MatchRegexp("^/.*/nvidia-smi was stopped: it hangs$")))
}

// untilItHangs returns a context that ends once a program hangs in the driver.
func untilItHangs(t *testing.T) context.Context {
	t.Helper()
	hangs := filepath.Join(t.TempDir(), "hangs")
	t.Setenv(fakegpu.Hangs, hangs)
	limited, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	ctx, cancel := context.WithCancelCause(limited)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(hangs); err == nil {
				cancel(errors.New("it hangs"))
			}
		}
	}()
	return ctx
}

func TestParseListFindsMIGDevicesOfTheirGPU(t *testing.T) {
	g := NewWithT(t)
	gpus, err := parseList([]byte("GPU 0: NVIDIA A100 (UUID: GPU-a)\n  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n" +
		"  MIG 1g.5gb      Device  1: (UUID: MIG-2)\nGPU 1: NVIDIA A100 (UUID: GPU-b)\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gpus).To(Equal([]listedGPU{{uuid: "GPU-a", migs: []string{"MIG-1", "MIG-2"}}, {uuid: "GPU-b"}}))
}
