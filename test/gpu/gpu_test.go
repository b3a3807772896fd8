package gpu_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
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
