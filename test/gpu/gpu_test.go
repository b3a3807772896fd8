package gpu_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// program returns the path of a built program: in the directory GPU_TEST_BIN, else in bin/.
func program(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("GPU_TEST") == "" {
		t.Skip("needs the NVIDIA driver of this machine; run make test-gpu")
	}
	dir := os.Getenv("GPU_TEST_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(path).To(BeAnExistingFile(), "run make build first")
	return path
}

// run runs the command with these additional variables.
func run(t *testing.T, variables []string, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), path, args...)
	command.Env = append(os.Environ(), variables...)
	command.Stdout, command.Stderr = &out, &errs
	start := time.Now()
	if err := command.Run(); command.ProcessState == nil {
		t.Fatal(err)
	}
	memory := int64(0)
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		memory = usage.Maxrss
	}
	t.Logf("%s %s: exit code %d after %s, at most %d KiB of memory\n%s%s", filepath.Base(path), strings.Join(args, " "),
		command.ProcessState.ExitCode(), time.Since(start).Round(time.Millisecond), memory, &out, &errs)
	return command.ProcessState.ExitCode(), out.String(), errs.String()
}

// listed returns the UUIDs that the driver's own nvidia-smi lists: of GPUs, or of MIG devices.
func listed(t *testing.T, kind string) []string {
	t.Helper()
	code, stdout, _ := run(t, nil, "nvidia-smi", "-L")
	NewWithT(t).Expect(code).To(Equal(0), "nvidia-smi works")
	return regexp.MustCompile(kind+`-[0-9a-f-]{36}`).FindAllString(stdout, -1)
}

func TestTheKernelRunsOnEveryGPU(t *testing.T) {
	g := NewWithT(t)
	cuda := program(t, "gpu-node-cuda")
	if len(listed(t, "MIG")) > 0 {
		t.Skip("with MIG, CUDA shows one device of several; TestValidateWritesTheMarkers proves each")
	}
	gpus := listed(t, "GPU")
	g.Expect(gpus).NotTo(BeEmpty())
	code, stdout, stderr := run(t, []string{"CUDA_CACHE_DISABLE=1"}, cuda)
	g.Expect(code).To(Equal(0), stderr)
	for _, uuid := range gpus {
		g.Expect(stdout).To(MatchRegexp(`GPU \d+ \(.*, ` + uuid + `, [0-9a-fA-F:.]+\): adds 10007 numbers, 2 times\n`))
	}
	g.Expect(strings.Count(stdout, "\n")).To(Equal(len(gpus)))
}

func TestRealLibraryReportsWhyThereIsNoGPU(t *testing.T) {
	g := NewWithT(t)
	code, _, stderr := run(t, []string{"CUDA_VISIBLE_DEVICES=-1"}, program(t, "gpu-node-cuda"))
	g.Expect(code).To(Equal(1))
	g.Expect(stderr).To(MatchRegexp(`^cuInit fails with CUDA_ERROR_NO_DEVICE \(100\): [^\n]*\n$`))
}

func TestValidateWritesTheMarkers(t *testing.T) {
	for _, component := range []string{"toolkit", "cuda"} {
		t.Run(component, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			args := []string{
				"validate", component, "--dir=" + dir, "--termination-log=" + filepath.Join(dir, "none"), "--timeout=2m",
			}
			node := program(t, "gpu-node")
			if component == "cuda" {
				args = append(args, "--program="+program(t, "gpu-node-cuda"))
			}
			code, _, stderr := run(t, nil, node, args...)
			g.Expect(code).To(Equal(0), stderr)
			g.Expect(os.ReadFile(filepath.Join(dir, component+"-ready"))).To(ContainSubstring("BOOT_ID="))
			g.Expect(filepath.Join(dir, component+".reason")).NotTo(BeAnExistingFile())
			if component == "cuda" {
				devices := listed(t, "MIG")
				if len(devices) == 0 {
					devices = listed(t, "GPU")
				}
				for _, uuid := range devices {
					g.Expect(stderr).To(ContainSubstring(uuid))
				}
			}
		})
	}
}

// What a session with NVML reads is what nvidia-smi prints, and nothing holds the driver after it.
func TestASessionWithNVML(t *testing.T) {
	g := NewWithT(t)
	cuda := program(t, "gpu-node-cuda")
	rows := queried(t, "pci.bus_id", "uuid", "driver_version", "pcie.link.width.current", "pcie.link.width.max",
		"ecc.errors.uncorrected.volatile.total")
	g.Expect(rows).NotTo(BeEmpty())
	args := []string{"nvml"}
	for _, row := range rows {
		// nvidia-smi prints the domain with eight digits.
		args = append(args, strings.ToLower(row[0][len(row[0])-len("0000:1b:00.0"):]))
	}
	before := references(t)
	begin := time.Now()
	code, stdout, stderr := run(t, nil, cuda, args...)
	t.Logf("a session with %d GPUs: %s", len(rows), time.Since(begin).Round(time.Millisecond))
	g.Expect(code).To(Equal(0), stderr)
	g.Expect(references(t)).To(Equal(before), "references of the kernel module nvidia")
	var sample nvml.Sample
	g.Expect(json.Unmarshal([]byte(stdout), &sample)).To(Succeed(), stdout)
	g.Expect(sample.Code).To(Equal(nvml.Success), sample.Call)
	g.Expect(sample.Count).To(Equal(len(rows)))
	g.Expect(sample.Driver).To(Equal(rows[0][2]))
	for i, row := range rows {
		gpu := sample.GPUs[i]
		g.Expect(gpu.Code).To(Equal(nvml.Success), row[0])
		g.Expect(gpu.UUID).To(Equal(row[1]))
		g.Expect(gpu.Link).NotTo(BeNil(), row[0])
		g.Expect([]string{strconv.Itoa(gpu.Link.Width), strconv.Itoa(gpu.Link.MaxWidth)}).To(Equal(row[3:5]), row[0])
		if count, err := strconv.ParseUint(row[5], 10, 64); err == nil { // Without ECC it is a text.
			g.Expect(gpu.Uncorrected).To(HaveValue(Equal(count)), row[0])
		}
		g.Expect(gpu.Throttle).NotTo(BeNil(), row[0])
	}
}

// queried returns the values of fields that nvidia-smi prints, for each GPU.
func queried(t *testing.T, fields ...string) [][]string {
	t.Helper()
	code, stdout, _ := run(t, nil, "nvidia-smi", "--query-gpu="+strings.Join(fields, ","), "--format=csv,noheader,nounits")
	NewWithT(t).Expect(code).To(Equal(0), "nvidia-smi works")
	var rows [][]string
	for line := range strings.Lines(stdout) {
		rows = append(rows, strings.Split(strings.TrimSpace(line), ", "))
	}
	return rows
}

// references returns how many users the kernel module nvidia has; empty where sysfs does not have the module, as in a
// sandbox, or with a driver that is played.
func references(t *testing.T) string {
	t.Helper()
	count, err := os.ReadFile("/sys/module/nvidia/refcnt")
	if errors.Is(err, fs.ErrNotExist) {
		t.Log("sysfs has no references of the kernel module nvidia: they are not compared")
		return ""
	}
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(count))
}
