package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// driverContainer is the view of the start-up probe in a driver container.
type driverContainer struct {
	dir, sys string
	env      []string
}

// newDriverContainer returns one that has started. nvidiaSMI is the script of its nvidia-smi.
func newDriverContainer(t *testing.T, nvidiaSMI string) driverContainer {
	t.Helper()
	g := NewWithT(t)
	root := t.TempDir()
	c := driverContainer{dir: filepath.Join(root, "run/validations"), sys: filepath.Join(root, "sys")}
	g.Expect(os.MkdirAll(filepath.Join(c.sys, "module/nvidia"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(c.sys, "module/nvidia/refcnt"), []byte("0\n"), 0o600)).To(Succeed())
	bin := filepath.Join(root, "bin")
	g.Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte("#!/bin/sh\n"+nvidiaSMI+"\n"), 0o700)).To(Succeed())
	c.env = []string{"PATH=" + bin, "POD_UID=uid"}
	return c
}

func (c driverContainer) reportDaemons(t *testing.T, status string) {
	t.Helper()
	NewWithT(t).Expect(os.MkdirAll(c.dir, 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(filepath.Join(c.dir, ".driver-daemons-status"), []byte(status), 0o600)).To(Succeed())
}

func (c driverContainer) probe(t *testing.T, flags ...string) (code int, output string) {
	t.Helper()
	command := exec.CommandContext(
		t.Context(),
		gpuNode,
		append([]string{"probe", "--dir=" + c.dir, "--sys-root=" + c.sys}, flags...)...)
	command.Env = c.env
	out, _ := command.CombinedOutput()
	return command.ProcessState.ExitCode(), string(out)
}

// The probe requires what NVIDIA's does, and writes what gpu-node validate reads.
func TestTheProbeOfTheDriverContainer(t *testing.T) {
	const works = "echo NVIDIA-SMI"
	for name, test := range map[string]struct {
		smi     string
		prepare func(t *testing.T, c *driverContainer)
		// want is the expected error, ready the content of the file otherwise.
		want, ready string
	}{
		"started": {smi: works,
			ready: "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\nDRIVER_INSTANCE: uid\n"},
		"started, with modules of sidecars": {smi: works,
			prepare: func(_ *testing.T, c *driverContainer) {
				c.env = append(c.env, "GDRCOPY_ENABLED=true", "GDS_ENABLED=true", "GPU_DIRECT_RDMA_ENABLED=true")
			},
			ready: "GDRCOPY_ENABLED: true\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: true\nDRIVER_INSTANCE: uid\n"},
		"its daemons are up": {smi: works,
			prepare: func(t *testing.T, c *driverContainer) { c.reportDaemons(t, "Ready\n") },
			ready:   "GDRCOPY_ENABLED: false\nGDS_ENABLED: false\nGPU_DIRECT_RDMA_ENABLED: false\nDRIVER_INSTANCE: uid\n"},
		"its daemons are not up": {smi: works, want: "the daemons of the driver are not up yet",
			prepare: func(t *testing.T, c *driverContainer) { c.reportDaemons(t, "NotReady\n") }},
		"its daemons have not reported yet": {smi: works, want: "the daemons of the driver are not up yet",
			prepare: func(t *testing.T, c *driverContainer) { c.reportDaemons(t, "") }},
		"the module is not loaded": {smi: works, want: "the kernel module nvidia is not loaded yet",
			prepare: func(t *testing.T, c *driverContainer) {
				NewWithT(t).Expect(os.Remove(filepath.Join(c.sys, "module/nvidia/refcnt"))).To(Succeed())
			}},
		"nvidia-smi fails": {smi: "echo no devices were found; exit 6", want: "no devices were found"},
		"nvidia-smi is missing": {smi: works, want: "nvidia-smi failed",
			prepare: func(_ *testing.T, c *driverContainer) { c.env[0] = "PATH=/nowhere" }},
		"outside a pod": {smi: works, want: "POD_UID is not set",
			prepare: func(_ *testing.T, c *driverContainer) { c.env = c.env[:1] }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newDriverContainer(t, test.smi)
			if test.prepare != nil {
				test.prepare(t, &c)
			}
			code, output := c.probe(t)
			file := filepath.Join(c.dir, ".driver-ctr-ready")
			if test.want != "" {
				g.Expect(code).To(Equal(1))
				g.Expect(output).To(ContainSubstring(test.want))
				g.Expect(file).NotTo(BeAnExistingFile())
				return
			}
			g.Expect(code).To(Equal(0), output)
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(test.ready))
			info, err := os.Stat(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o644)), "containers that are not root read it")
			left, err := os.ReadDir(c.dir)
			g.Expect(err).NotTo(HaveOccurred())
			for _, entry := range left {
				g.Expect(entry.Name()).To(BeElementOf(".driver-ctr-ready", ".driver-daemons-status"))
			}
		})
	}
}

// A probe that fails keeps the file: once it has passed, the kubelet repeats a start-up probe only in a container that
// it restarts.
func TestTheFailingProbeKeepsTheFile(t *testing.T) {
	g := NewWithT(t)
	c := newDriverContainer(t, "exit 1")
	g.Expect(os.MkdirAll(c.dir, 0o700)).To(Succeed())
	file := filepath.Join(c.dir, ".driver-ctr-ready")
	g.Expect(os.WriteFile(file, []byte("before"), 0o600)).To(Succeed())
	code, _ := c.probe(t)
	g.Expect(code).To(Equal(1))
	content, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("before"))
}

// The kubelet counts attempts: one in which nvidia-smi fails takes as long as one without a driver.
func TestTheProbeRepeatsNvidiaSMI(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newDriverContainer(t, "echo no devices were found; exit 6")
	begin := time.Now()
	code, output := c.probe(t, "--within=500ms")
	g.Expect(code).To(Equal(1))
	g.Expect(output).To(ContainSubstring("no devices were found"))
	g.Expect(time.Since(begin)).To(BeNumerically(">=", 500*time.Millisecond))
	failed := filepath.Join(t.TempDir(), "failed")
	c = newDriverContainer(t, "[ -e "+failed+" ] && exit 0; : > "+failed+"; exit 6")
	code, output = c.probe(t, "--within=2m")
	g.Expect(code).To(Equal(0), output)
}

// The probe notices a driver that comes up while it waits, and fails in time if none does.
func TestTheProbeWaits(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newDriverContainer(t, "echo NVIDIA-SMI")
	module := filepath.Join(c.sys, "module/nvidia/refcnt")
	g.Expect(os.Remove(module)).To(Succeed())
	begin := time.Now()
	code, output := c.probe(t, "--within=500ms")
	g.Expect(code).To(Equal(1))
	g.Expect(output).To(ContainSubstring("the kernel module nvidia is not loaded yet"))
	g.Expect(time.Since(begin)).To(BeNumerically(">=", 500*time.Millisecond))
	failed := make(chan error, 1)
	time.AfterFunc(2*time.Second, func() { failed <- os.WriteFile(module, []byte("0\n"), 0o600) })
	code, output = c.probe(t, "--within=2m")
	g.Expect(<-failed).NotTo(HaveOccurred())
	g.Expect(code).To(Equal(0), output)
}
