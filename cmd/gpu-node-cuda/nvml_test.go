package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/needs"
)

func sampleOf(t *testing.T, environ []string, args ...string) nvml.Sample {
	t.Helper()
	code, stdout, stderr := run(t, environ, append([]string{"nvml"}, args...)...)
	NewWithT(t).Expect(code).To(Equal(0), stderr)
	var sample nvml.Sample
	NewWithT(t).Expect(json.Unmarshal([]byte(stdout), &sample)).To(Succeed(), stdout)
	return sample
}

func TestNVML(t *testing.T) {
	stack := fakegpu.Build(t)
	environ := func(words string) []string { return stack.Environ("FAKE_GPUS=gpu gpu", "FAKE_NVML="+words) }
	healthy := nvml.GPU{
		PCI: "0000:08:00.0", UUID: "GPU-20212223-2425-2627-2829-2a2b2c2d2e00", Action: new(nvml.ActionNone),
		Uncorrected: new(uint64(0)), SRAMExceeded: new(false), Remap: &nvml.Remap{},
		Link:     &nvml.Link{Width: 16, MaxWidth: 16, Generation: 4, MaxGeneration: 4},
		Throttle: new(uint64(1)), ThrottledNanos: new(uint64(0)), NVLinks: &nvml.NVLinks{Up: 12},
	}
	with := func(change func(*nvml.GPU)) nvml.GPU {
		changed := healthy
		change(&changed)
		return changed
	}
	for name, test := range map[string]struct {
		words string
		want  nvml.GPU
	}{
		"a healthy GPU": {"", healthy},
		"one that needs everything": {
			"action=4 uncorrected=5 sram remap.pending=1 remap.failed=1 remap.correctable=2 remap.uncorrectable=3 width=8 " +
				"generation=1 throttle=0x40 heat.nanos=7 brake.nanos=5000000000 nvlinks=4 nvlinks.down=1",
			nvml.GPU{
				PCI: healthy.PCI, UUID: healthy.UUID, Action: new(nvml.ActionDrainAndReset), Uncorrected: new(uint64(5)),
				SRAMExceeded: new(true), Remap: &nvml.Remap{Correctable: 2, Uncorrectable: 3, Pending: true, Failed: true},
				Link:     &nvml.Link{Width: 8, MaxWidth: 16, Generation: 1, MaxGeneration: 4},
				Throttle: new(uint64(nvml.ThrottleHeat)), ThrottledNanos: new(uint64(5_000_000_007)),
				NVLinks: &nvml.NVLinks{Up: 3, Down: 1},
			},
		},
		"fields that an old driver does not have": {"action=-1 heat.nanos=-1", with(func(g *nvml.GPU) {
			g.Action, g.ThrottledNanos = nil, nil
		})},
		"a MIG GPU has no row remapper": {"remap.pending=-1 remap.failed=-1", with(func(g *nvml.GPU) { g.Remap = nil })},
		"calls that are not supported": {
			"nvmlDeviceGetSramEccErrorStatus=3 nvmlDeviceGetCurrentClocksEventReasons=13 nvmlDeviceGetNvLinkState=3 " +
				"nvmlDeviceGetCurrPcieLinkWidth=25",
			with(func(g *nvml.GPU) { g.SRAMExceeded, g.Throttle, g.NVLinks, g.Link = nil, nil, nil, nil }),
		},
		"a lost GPU": {"nvmlDeviceGetHandleByPciBusId_v2@1=15", nvml.GPU{PCI: healthy.PCI, Code: nvml.GPULost}},
		"a GPU that is lost during the session": {"nvmlDeviceGetNvLinkState@1=15", with(func(g *nvml.GPU) {
			g.Code, g.NVLinks = nvml.GPULost, nil
		})},
		"a GPU that requires a reset": {"nvmlDeviceGetUUID@1=16", with(func(g *nvml.GPU) {
			g.Code, g.UUID = nvml.ResetRequired, ""
		})},
	} {
		t.Run(name, func(t *testing.T) {
			sample := sampleOf(t, environ(test.words), healthy.PCI)
			NewWithT(t).Expect(sample).To(Equal(nvml.Sample{Driver: "580.95.05", Count: 2, GPUs: []nvml.GPU{test.want}}))
		})
	}
	t.Run("an unknown GPU", func(t *testing.T) {
		sample := sampleOf(t, environ(""), "0000:ff:00.0", "0000:07:00.0")
		NewWithT(t).Expect(sample.GPUs[0]).To(Equal(nvml.GPU{PCI: "0000:ff:00.0", Code: nvml.NotFound}))
		NewWithT(t).Expect(sample.GPUs[1].Code).To(Equal(nvml.Success))
	})
	t.Run("a driver that was replaced", func(t *testing.T) {
		NewWithT(t).Expect(sampleOf(t, environ("nvmlInit_v2=18"), healthy.PCI)).To(
			Equal(nvml.Sample{Code: nvml.LibraryMismatch, Call: "nvmlInit_v2"}))
	})
	t.Run("no library", func(t *testing.T) {
		sample := sampleOf(t, nil, "--library=/none.so")
		NewWithT(t).Expect(sample.Code).To(Equal(nvml.LibraryNotFound))
		NewWithT(t).Expect(sample.Problem).To(ContainSubstring("/none.so"))
	})
}

// In the root of a driver there is nothing of this container: the program, which is no file of it, is loaded with the C
// library of that root, and finds the driver's library there.
func TestNVMLInTheRootOfADriver(t *testing.T) {
	if os.Getuid() != 0 {
		needs.Unmet(t, needs.Root, "enters another root file system")
	}
	g := NewWithT(t)
	stack, root := fakegpu.Build(t), t.TempDir()
	libraries, err := exec.CommandContext(t.Context(), "ldd", program(runtime.GOARCH)).Output()
	g.Expect(err).NotTo(HaveOccurred())
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copyInto(t, root, word)
		}
	}
	g.Expect(os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755)).To(Succeed())
	library, err := os.ReadFile(filepath.Join(stack.Lib, nvml.Library))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(root, "usr/lib", nvml.Library), library, 0o755)).To(Succeed())
	sample := sampleOf(t, []string{"LD_LIBRARY_PATH=/usr/lib"}, "--root="+root, "0000:07:00.0")
	g.Expect(sample.Code).To(Equal(nvml.Success), sample.Problem)
	g.Expect(sample.GPUs).To(HaveLen(1))
	g.Expect(sample.GPUs[0].UUID).To(Equal("GPU-10111213-1415-1617-1819-1a1b1c1d1e00"))

	code, _, stderr := run(t, nil, "nvml", "--root="+t.TempDir(), "0000:07:00.0")
	g.Expect(code).To(Equal(1))
	g.Expect(stderr).To(ContainSubstring("has it a C library?"))
}

// copyInto copies a file to the same path below root.
func copyInto(t *testing.T, root, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(filepath.Join(root, path), content, 0o755)).To(Succeed())
}
