package validate

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
)

// cudaProgram builds gpu-node-cuda, as it is shipped.
func cudaProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpu-node-cuda")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path,
		"../../../cmd/gpu-node-cuda")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestCUDA(t *testing.T) {
	stack, program := fakegpu.Build(t), cudaProgram(t)
	tests := map[string]struct {
		variables map[string]string
		log       []string // What is logged, if it succeeds.
		err       string
	}{
		"one GPU": {log: []string{"GPU-10111213-1415-1617-1819-1a1b1c1d1e00"}},
		"two GPUs in one process": {variables: map[string]string{fakegpu.GPUs: "gpu gpu"},
			log: []string{"GPU 0 (NVIDIA A100-SXM4-40GB, GPU-10", "GPU 1 (NVIDIA A100-SXM4-40GB, GPU-20"}},
		"each MIG device, and the GPUs next to them": {variables: map[string]string{fakegpu.GPUs: "mig2 gpu mig0 mig1 gpu"},
			log: []string{"MIG-10111213-1415-1617-1819-1a1b1c1d1e01", "MIG-10111213-1415-1617-1819-1a1b1c1d1e02",
				"MIG-40414243-4445-4647-4849-4a4b4c4d4e01", "GPU-20212223", "GPU-50515253"}},
		"more MIG devices than run at the same time": {variables: map[string]string{fakegpu.GPUs: "mig7 mig7"},
			log: []string{
				"1e01", "1e02", "1e03", "1e04", "1e05", "1e06", "1e07", "2e01", "2e02", "2e03", "2e04", "2e05", "2e06", "2e07",
			}},
		"a GPU in use": {
			variables: map[string]string{fakegpu.CUDA: "cuDevicePrimaryCtxRetain=2"},
			log:       []string{"is in use, not validated"},
		},
		"an error of nvidia-smi": {variables: map[string]string{fakegpu.NVML: "nvmlInit_v2=18"},
			err: "the libraries in this container are of another version"},
		"an error of the program": {variables: map[string]string{fakegpu.CUDA: "cuInit=802"},
			err: "^cuInit fails with CUDA_ERROR_SYSTEM_NOT_READY \\(802\\): the GPUs are not ready; [^\n]*$"},
		"one MIG device of several": {variables: map[string]string{fakegpu.GPUs: "mig0 mig3", fakegpu.CUDA: "wrong=3"},
			err: "MIG-20212223-2425-2627-2829-2a2b2c2d2e01, 0000:08:00.0\\): computes wrong numbers: in round 1, element 3 "},
		"a crash": {variables: map[string]string{fakegpu.CUDA: "crash:cuInit"},
			err: "^/.*/gpu-node-cuda crashes in the driver's libraries \\(signal: segmentation fault.*\\); see the kernel log"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			inContainer(t, stack, tc.variables)
			var log bytes.Buffer
			check := CUDA{Program: program, Log: slog.New(slog.NewTextHandler(&log, nil))}
			_, err := check.Check(t.Context())
			if tc.err != "" {
				g.Expect(err).To(MatchError(MatchRegexp(tc.err)))
				g.Expect(log.String()).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(log.String(), "\n")).To(Equal(len(tc.log)), log.String())
			for _, part := range tc.log {
				g.Expect(log.String()).To(ContainSubstring(part))
			}
		})
	}
}

func TestCUDAReportsWhyItsProgramDoesNotRun(t *testing.T) {
	stack := fakegpu.Build(t)
	seen := map[string]string{}
	for name, tc := range map[string]struct {
		content, err string
	}{
		"it is missing": {err: "^/.*/gpu-node-cuda does not exist; use an image of the operator that has it"},
		"its loader is missing": {
			content: "#!/no/such/loader\n",
			err:     "gpu-node-cuda finds no loader; use an image of the operator that has a C library",
		},
		"its C library is missing": {
			content: "#!/bin/sh\necho 'error while loading shared libraries: libc.so.6' >&2; exit 127\n",
			err: `gpu-node-cuda cannot be loaded; use an image of the operator that has a C library ` +
				`\(the loader reports "error while loading shared libraries: libc.so.6"\)`,
		},
		"it is of another machine": {
			content: "\x7fELF",
			err:     "gpu-node-cuda cannot be run; use the operator's image for this processor",
		},
		"it was killed": {
			content: "#!/bin/sh\nkill -9 $$\n",
			err:     "gpu-node-cuda was killed; raise the memory limit of this container",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			inContainer(t, stack, nil)
			path := filepath.Join(t.TempDir(), "gpu-node-cuda")
			if tc.content != "" {
				program(t, path, tc.content)
			}
			_, err := CUDA{Program: path, Log: slog.New(slog.DiscardHandler)}.Check(t.Context())
			g.Expect(err).To(MatchError(MatchRegexp(tc.err)))
			g.Expect(seen).NotTo(HaveKey(err.Error()), "another failure has the same message")
			seen[err.Error()] = name
		})
	}
}

func TestCUDAReportsThatItsProgramHangs(t *testing.T) {
	g := NewWithT(t)
	program := cudaProgram(t)
	inContainer(t, fakegpu.Build(t), map[string]string{fakegpu.CUDA: "hang:cuCtxSynchronize"})
	_, err := CUDA{Program: program, Log: slog.New(slog.DiscardHandler)}.Check(untilItHangs(t))
	g.Expect(err).To(MatchError(MatchRegexp("^/.*/gpu-node-cuda was stopped: it hangs$")))
}
