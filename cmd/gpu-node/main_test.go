package main_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// The programs under test, as they are shipped: static.
var (
	gpuNode   string
	nvidiaSMI string
)

// parallelTests is how many tests run in parallel, on however few cores: they mostly wait.
const parallelTests = "6"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gpu-node")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", ".", "./testdata/nvidia-smi")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		gpuNode, nvidiaSMI = filepath.Join(dir, "gpu-node"), filepath.Join(dir, "nvidia-smi")
		return m.Run()
	}())
}

// pod is the directory of a node's markers and the termination message of one container.
type pod struct {
	markers     string
	termination string
}

func newPod(t *testing.T) pod {
	t.Helper()
	dir := t.TempDir()
	p := pod{markers: filepath.Join(dir, "validations"), termination: filepath.Join(dir, "termination-log")}
	// The kubelet creates both.
	NewWithT(t).Expect(os.Mkdir(p.markers, 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(p.termination, nil, 0o600)).To(Succeed())
	return p
}

// command returns gpu-node with the pod's flags; args before "--", which may be missing, come first.
func (p pod) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	all := slices.Concat(args[:at], []string{"--dir=" + p.markers, "--termination-log=" + p.termination}, args[at:])
	return exec.CommandContext(t.Context(), gpuNode, all...)
}

// put writes a marker of this boot atomically, like gpu-node validate.
func (p pod) put(t *testing.T, name, assignments string) {
	t.Helper()
	g := NewWithT(t)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	g.Expect(err).NotTo(HaveOccurred())
	tmp := filepath.Join(t.TempDir(), name)
	content := assignments + "BOOT_ID=" + string(boot) + "DRIVER_INSTANCE=\n"
	g.Expect(os.WriteFile(tmp, []byte(content), 0o600)).To(Succeed())
	g.Expect(os.Rename(tmp, filepath.Join(p.markers, name))).To(Succeed())
}

func (p pod) message(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(p.termination)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// process is a running command.
type process struct {
	*exec.Cmd
	ended chan error
}

// startUntilLogged starts the command and returns once it has logged text.
func startUntilLogged(tb testing.TB, command *exec.Cmd, text string) process {
	tb.Helper()
	g := NewWithT(tb)
	stderr, err := command.StderrPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(command.Start()).To(Succeed())
	logged, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		seen := false
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if !seen && strings.Contains(lines.Text(), text) {
				seen = true
				close(logged)
			}
		}
		ended <- command.Wait()
	}()
	g.Eventually(logged, "1m").Should(BeClosed(), "gpu-node logs %q", text)
	return process{Cmd: command, ended: ended}
}

// exitCode waits for the end of the process.
func (p process) exitCode(t *testing.T) int {
	t.Helper()
	NewWithT(t).Eventually(p.ended, "1m").Should(Receive())
	return p.ProcessState.ExitCode()
}

func TestUsageErrorsExitWith2(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"no command":                   {want: "no command given; use wait"},
		"an unknown command":           {args: []string{"wiat"}, want: `"wiat"`},
		"an unknown flag":              {args: []string{"hold", "--x"}, want: "unknown flag: --x"},
		"a wait for nothing":           {args: []string{"wait"}, want: `"for" not set`},
		"a wait for an empty list":     {args: []string{"wait", "--for="}, want: "--for is empty"},
		"a wait for an unknown marker": {args: []string{"wait", "--for=drvier"}, want: `unknown marker "drvier"`},
		"a timeout without a unit":     {args: []string{"wait", "--for=driver", "--timeout=5"}, want: "missing unit"},
		"a timeout below zero":         {args: []string{"wait", "--for=driver", "--timeout=-5s"}, want: "is negative"},
		"an exec of nothing":           {args: []string{"exec"}, want: "requires at least 1 arg"},
		"an exec with half a rule": {args: []string{"exec", "--env-if-module=A", "--", "true"},
			want: `--env-if-module: "A" does not have the form VARIABLE=SOURCE`},
		"an exec with an unknown marker": {
			args: []string{"exec", "--marker=x", "--", "true"},
			want: `unknown marker "x"`,
		},
		"a validation of nothing":       {args: []string{"validate"}, want: "use driver, toolkit"},
		"an unknown validation":         {args: []string{"validate", "gpu"}, want: `unknown command "gpu"`},
		"an interval of nothing":        {args: []string{"validate", "toolkit", "--interval=0s"}, want: "must be above 0s"},
		"a plugin check without a node": {args: []string{"validate", "plugin"}, want: "NODE_NAME"},
		"a cleanup of a relative directory": {
			args: []string{"cleanup", "--mps-root=mps"}, want: "--mps-root=mps: it must be an absolute path"},
		"a configuration for no node": {args: []string{"configure"}, want: "NODE_NAME"},
		"a configuration from nowhere": {
			args: []string{"configure", "--node-name=a"}, want: "--configs-dir or the environment variable CONFIG_FILE_SRCDIR",
		},
		"a configuration by chance": {
			args: []string{"configure", "--node-name=a", "--configs-dir=/a", "--file=/b", "--fallback-strategies=single"},
			want: `FALLBACK_STRATEGIES is "single"`,
		},
		"a copy to nowhere": {args: []string{"copy"}, want: "accepts 1 arg(s)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			command := exec.CommandContext(t.Context(), gpuNode, tc.args...)
			command.Env = []string{}
			out, _ := command.CombinedOutput()
			g.Expect(command.ProcessState.ExitCode()).To(Equal(2), string(out))
			g.Expect(string(out)).To(ContainSubstring(tc.want))
			g.Expect(strings.Count(string(out), "\n")).To(Equal(1), string(out))
		})
	}
}

// How fast that is, TestAMarkerIsHandedOverWithin100Milliseconds measures.
func TestWaitEndsWithTheMarker(t *testing.T) {
	g, pod := NewWithT(t), newPod(t)
	pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\n")
	wait := startUntilLogged(t, pod.command(t, "wait", "--for=driver,toolkit"), "toolkit-ready is missing")
	pod.put(t, "toolkit-ready", "")
	g.Expect(wait.exitCode(t)).To(Equal(0))
	g.Expect(pod.message(t)).To(BeEmpty())
}

// A marker that has outlived its kernel module starts nothing: neither the containers behind wait, nor the command of
// exec. Once the module is loaded again, both succeed.
func TestMarkersThatHaveOutlivedTheirModule(t *testing.T) {
	for name, args := range map[string][]string{
		"wait": {"wait", "--for=driver"}, "exec": {"exec", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod, sys := newPod(t), gpuHost{root: t.TempDir()}
			pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\nDRIVER_MODULE=580.1\n")
			args := slices.Insert(slices.Clone(args), 1, "--sys-root="+sys.root)
			wait := pod.command(t, slices.Insert(slices.Clone(args), 1, "--timeout=1ms")...)
			g.Expect(wait.Run()).To(HaveOccurred())
			g.Expect(pod.message(t)).To(HaveSuffix("for driver: driver-ready is stale: the kernel module nvidia, with which " +
				"the driver was validated, is not loaded any more\n"))
			sys.write(t, "module/nvidia/version", "580.1\n")
			g.Expect(pod.command(t, args...).Run()).To(Succeed())
		})
	}
}

func TestWaitReportsWhyWhenItEndsWithoutTheMarker(t *testing.T) {
	t.Run("at its timeout", func(t *testing.T) {
		g := NewWithT(t)
		pod := newPod(t)
		g.Expect(os.WriteFile(filepath.Join(pod.markers, "toolkit-ready"), nil, 0o600)).To(Succeed())
		wait := pod.command(t, "wait", "--for=driver,toolkit", "--timeout=1ms")
		g.Expect(wait.Run()).To(HaveOccurred())
		g.Expect(wait.ProcessState.ExitCode()).To(Equal(1))
		g.Expect(pod.message(t)).To(Equal("timeout of 1ms after waiting 0s for driver, toolkit: driver-ready is missing; " +
			"toolkit-ready has no line BOOT_ID=, so it depends on the driver's marker: driver-ready is missing\n"))
	})
	t.Run("at SIGTERM", func(t *testing.T) {
		g := NewWithT(t)
		pod := newPod(t)
		wait := startUntilLogged(t, pod.command(t, "wait", "--for=driver"), "waiting for driver")
		g.Expect(wait.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Expect(wait.exitCode(t)).To(Equal(1))
		g.Expect(pod.message(t)).
			To(Equal("terminated signal received after waiting 0s for driver: driver-ready is missing\n"))
	})
	t.Run("outside a container, without a termination message", func(t *testing.T) {
		g := NewWithT(t)
		pod := newPod(t)
		g.Expect(os.Remove(pod.termination)).To(Succeed())
		out, _ := pod.command(t, "wait", "--for=driver", "--timeout=1ms").CombinedOutput()
		g.Expect(string(out)).To(ContainSubstring("driver-ready is missing"))
		g.Expect(pod.termination).NotTo(BeAnExistingFile())
	})
}

func TestExecBecomesTheCommandWithTheDriversEnvironment(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	out := filepath.Join(t.TempDir(), "out")
	command := pod.command(t, "exec", "--", "sh", "-c",
		`echo "$$ $IS_HOST_DRIVER $NVIDIA_DRIVER_ROOT $KEPT [$BOOT_ID]" >"$0"; exit 7`, out)
	command.Env = append(os.Environ(), "KEPT=kept", "NVIDIA_DRIVER_ROOT=/old")
	program := startUntilLogged(t, command, "waiting for driver")

	pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT='/a $b'\n")

	g.Expect(program.exitCode(t)).To(Equal(7), "the command's own")
	g.Expect(os.ReadFile(out)).To(BeEquivalentTo(fmt.Sprintf("%d true /a $b kept []\n", program.Process.Pid)))
}

// The variables that the entrypoints of NVIDIA's images derive on the node.
func TestExecDerivesVariablesThatTheContainerLeavesUnset(t *testing.T) {
	g := NewWithT(t)
	pod, sys := newPod(t), gpuHost{root: t.TempDir()}
	pod.put(t, "driver-ready", "IS_HOST_DRIVER=true\n")
	sys.write(t, "module/nvidia_fs/initstate", "live\n")
	command := pod.command(t, "exec", "--sys-root="+sys.root,
		"--env-from-marker=WITH_SHUTDOWN_HOST_GPU_CLIENTS=IS_HOST_DRIVER", "--env-if-module=GDRCOPY_ENABLED=gdrdrv",
		"--env-if-module=GDS_ENABLED=nvidia_fs", "--env-if-module=MOFED_ENABLED=nvidia_fs", "--", "sh", "-c",
		`echo "$WITH_SHUTDOWN_HOST_GPU_CLIENTS [$GDRCOPY_ENABLED] $GDS_ENABLED $MOFED_ENABLED [$STARTED_AT]"`)
	command.Env = append(os.Environ(), "MOFED_ENABLED=false")
	g.Expect(command.Output()).To(BeEquivalentTo("true [] true false []\n"))
}

func TestExecFailsWithoutTheCommand(t *testing.T) {
	g := NewWithT(t)
	pod := newPod(t)
	pod.put(t, "driver-ready", "")
	command := pod.command(t, "exec", "--", "no-such-command", "--flag")
	g.Expect(command.Run()).To(HaveOccurred())
	g.Expect(command.ProcessState.ExitCode()).To(Equal(1))
	g.Expect(pod.message(t)).To(ContainSubstring(`"no-such-command": executable file not found in $PATH`))
}

func TestCopyCreatesAProgramThatRuns(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "not", "yet")
	for range 2 { // The second replaces the first, as after a restart of the init container.
		g.Expect(exec.CommandContext(t.Context(), gpuNode, "copy", dir).Run()).To(Succeed())
	}
	g.Expect(os.ReadDir(dir)).To(HaveLen(1))
	copied := filepath.Join(dir, "gpu-node")
	info, err := os.Stat(copied)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode()).To(Equal(os.FileMode(0o755)))
	g.Expect(exec.CommandContext(t.Context(), copied, "--help").Run()).To(Succeed())
}

func TestHoldEndsSuccessfullyAtSIGTERM(t *testing.T) {
	g := NewWithT(t)
	// NVIDIA's documentation checks for this line in the log of the validator.
	hold := startUntilLogged(t, exec.CommandContext(t.Context(), gpuNode, "hold"), "all validations are successful")
	g.Expect(hold.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(hold.exitCode(t)).To(Equal(0))
}
