package cleanup_test

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime/hostruntimetest"
)

func TestMain(m *testing.M) {
	hostruntimetest.Main()
	os.Exit(m.Run())
}

// runtimeCase is a container runtime that has read a configuration of the toolkit.
type runtimeCase struct {
	// socket is where it listens. Its program is told by that, unless it has another name.
	socket, name string
	// file is what it has read, and content what was in it then; after is what is in it now, if the toolkit has not left
	// it. before is there besides.
	file, content, after string
	before               map[string]string
	keepRuntimes         bool

	// reloaded: the first run has told it to read its configuration. Then programs are whether those of the toolkit are
	// still there, and left is what stays.
	reloaded, programs bool
	left               types.GomegaMatcher
	// programsStay and stays are the same for a second run.
	programsStay bool
	stays        types.GomegaMatcher
}

// check runs the clean-up twice.
func (test runtimeCase) check(t *testing.T) {
	const program = "usr/local/nvidia/toolkit/nvidia-container-runtime"
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.write(program, "")
	host.write(test.file, test.content)
	for file, content := range test.before {
		host.write(file, content)
	}
	host.dir(test.socket[:len(test.socket)-len("/runtime.sock")])
	runtime := hostruntime.ProgramOf(test.socket)
	pid, ended := hostruntimetest.Start(t, runtime, host.path(test.socket), host.path(test.file))
	if test.name == "" {
		test.name = string(runtime)
	}
	host.process(fmt.Sprint(pid), test.name, "")
	host.replace(test.file)
	if test.after != "" {
		host.write(test.file, test.after)
	}
	options := host.options()
	options.RuntimeSockets, options.KeepRuntimes = []string{"/" + test.socket}, test.keepRuntimes
	for _, run := range []struct {
		reloaded, programs bool
		left               types.GomegaMatcher
	}{{test.reloaded, test.programs, test.left}, {false, test.programsStay, test.stays}} {
		report, err := cleanup.Run(options)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(report.Left).To(run.left)
		reloads := 0
		if run.reloaded {
			reloads = 1
		}
		g.Expect(report.Reloaded).To(HaveLen(reloads))
		_, err = os.Lstat(host.path(program))
		g.Expect(err == nil).To(Equal(run.programs), program)
		options.Reloaded = append(options.Reloaded, report.Reloaded...)
		switch {
		case !run.reloaded:
		case runtime == hostruntime.Containerd:
			g.Eventually(ended, "10s").Should(BeClosed())
		default:
			// It reads its configuration at some time after the signal.
			g.Eventually(func() string {
				answer, err := runtime.Ask(host.short(test.socket))
				g.Expect(err).NotTo(HaveOccurred())
				return string(answer.Config)
			}, "10s", "10ms").Should(Equal(test.after))
		}
	}
}

func TestRuntimesThatStillHaveTheToolkit(t *testing.T) {
	const program = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
	// The runtime is busy, and so are the programs.
	busy := func(why string) types.GomegaMatcher {
		return ConsistOf(
			And(HaveField("Path", HaveSuffix("runtime.sock")), HaveField("Busy", true), HaveField("Why", ContainSubstring(why))),
			cleanup.Left{
				Path: program, By: "the container toolkit", Busy: true,
				Why: "the container runtime may start containers with it",
			})
	}
	const containerd = `{"runtimes":{"nvidia":{"options":{"BinaryName":"` + program + `"}}},"defaultRuntimeName":"runc"}`
	const docker = `{"Runtimes":{"nvidia":{"path":"` + program + `"}},"DefaultRuntime":"nvidia"}`
	const crioDropIn = "etc/crio/crio.conf.d/99-nvidia.conf"
	const k3sConfig = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	for name, test := range map[string]runtimeCase{
		"containerd, which the toolkit has not told": {
			socket: "run/runtime.sock", file: "opt/config", content: containerd,
			reloaded: true, programs: true, left: busy("(containerd) still has programs in /usr/local/nvidia/toolkit/"),
			stays: BeEmpty(),
		},
		"containerd, whose drop-in a killed toolkit has left": {
			socket: "run/runtime.sock", file: "etc/containerd/conf.d/99-nvidia.toml", content: dropIn, after: dropIn,
			reloaded: true, programs: true, left: busy("still has programs"), stays: BeEmpty(),
		},
		"CRI-O, whose drop-in the toolkit leaves": {
			socket: "run/crio/runtime.sock", file: crioDropIn, content: `runtime_path = "` + program + `"`,
			reloaded: true, programs: true, left: busy("(crio) still has programs"), stays: BeEmpty(),
		},
		"one that has read its configuration again": {
			socket: "run/runtime.sock", file: "opt/config", content: `{"defaultRuntimeName":"runc"}`,
			left: BeEmpty(), stays: BeEmpty(),
		},
		"containerd without pods, of Docker": {
			socket: "run/runtime.sock", file: "opt/config", content: "status=12", left: BeEmpty(), stays: BeEmpty(),
		},
		"containerd that is not ready": {
			socket: "run/runtime.sock", file: "opt/config", content: "status=14",
			programs: true, left: busy("it is unknown whether the runtime still has the toolkit's programs"),
			programsStay: true, stays: busy("it answered with the status 14"),
		},
		"Docker, which keeps its default runtime until a restart": {
			socket: "run/docker/runtime.sock", file: "opt/config", content: docker, after: docker + " ",
			reloaded: true, programs: true, left: busy("(dockerd) still has programs"),
			programsStay: true, stays: busy("restart it"),
		},
		"one that the spec's toolkit does not restart": {
			socket: "run/runtime.sock", file: "opt/config", content: containerd, keepRuntimes: true,
			left:  left("/run/runtime.sock", "restart it"),
			stays: left("/run/runtime.sock", "restart it"),
		},
		"one whose configuration still names the toolkit": {
			socket: "run/runtime.sock", file: "opt/config", content: containerd,
			before: map[string]string{"etc/containerd/config.toml": `BinaryName = "` + program + `"`},
			left:   left("/etc/containerd/config.toml", "take them out"),
			stays:  left("/etc/containerd/config.toml", "take them out"),
		},
		"one whose configuration makes the toolkit's runtime the default": {
			socket: "run/runtime.sock", file: "opt/config", content: containerd,
			before:   map[string]string{"etc/containerd/config.toml": `default_runtime_name = "nvidia" # ` + program},
			programs: true, left: left("/etc/containerd/config.toml", "makes the toolkit's runtime the default",
				program, "by /etc/containerd/config.toml"),
			programsStay: true, stays: left("/etc/containerd/config.toml", "makes the toolkit's runtime the default",
				program, "by /etc/containerd/config.toml"),
		},
		"k3s, which has found the toolkit that is gone now": {
			socket: "run/k3s/runtime.sock", file: k3sConfig, content: dropIn, after: dropIn,
			before:   map[string]string{"nvidia-container-runtime": ""},
			reloaded: true, left: left("/"+k3sConfig, "restart k3s or RKE2", "/run/k3s/runtime.sock", "still has programs"),
			stays: left("/"+k3sConfig, "restart k3s or RKE2"),
		},
		"k3s, which has found the toolkit that a container uses": {
			socket: "run/k3s/runtime.sock", file: k3sConfig, content: dropIn, after: dropIn,
			before: map[string]string{
				"run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c1/runtime": program,
			},
			programs: true, left: left("/"+k3sConfig, "restart k3s or RKE2", program, "container c1 was created with it"),
			programsStay: true, stays: left("/"+k3sConfig, "restart k3s or RKE2", program, "container c1 was created with it"),
		},
		"k3s, which has found the toolkit": {
			socket: "run/k3s/runtime.sock", file: k3sConfig, content: dropIn, after: dropIn,
			before:   map[string]string{"usr/local/nvidia/toolkit/notes": ""},
			reloaded: true, left: ConsistOf(And(HaveField("Path", "/"+k3sConfig), HaveField("Busy", true)),
				HaveField("Path", "/run/k3s/runtime.sock"),
				HaveField("Path", "/usr/local/nvidia/toolkit")),
			// A supervisor would start it again.
			stays: left("/"+k3sConfig, "restart k3s or RKE2", "/usr/local/nvidia/toolkit", "notes"),
		},
		"another program behind the socket": {
			socket: "run/runtime.sock", file: "opt/config", content: containerd, name: "systemd",
			left:  left("/run/runtime.sock", "another program listens on its socket"),
			stays: left("/run/runtime.sock", "another program listens on its socket"),
		},
	} {
		t.Run(name, test.check)
	}
}

// Whether a runtime has the toolkit's programs is unknown where its socket is out of reach.
func TestRuntimesOutOfReach(t *testing.T) {
	for _, mode := range []os.FileMode{0, 0o444} {
		t.Run(mode.String(), func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			host.socket("run/crio/crio.sock", false)
			g.Expect(os.Chmod(host.path("run/crio"), mode)).To(Succeed())
			t.Cleanup(func() { _ = os.Chmod(host.path("run/crio"), 0o755) })
			report, err := bound(t, host.options())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.Left).To(ConsistOf(And(HaveField("Path", "/run/crio/crio.sock"), HaveField("Busy", true),
				HaveField("Why", ContainSubstring("it is unknown whether the runtime still has the toolkit's programs: ")))))
		})
	}
}

// A runtime that k3s runs is not told where it is unknown whether the toolkit's programs are there.
func TestProgramsOutOfReach(t *testing.T) {
	const config, dir = "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "usr/local/nvidia"
	g, host := NewWithT(t), newTree(t)
	host.operatingSystem()
	host.write(config, dropIn)
	host.write(dir+"/toolkit/nvidia-container-runtime", "")
	host.dir("run/k3s/containerd")
	socket := "run/k3s/containerd/containerd.sock"
	pid, _ := hostruntimetest.Start(t, hostruntime.Containerd, host.path(socket), host.path(config))
	host.process(fmt.Sprint(pid), "containerd", "")
	g.Expect(os.Chmod(host.path(dir), 0)).To(Succeed())
	t.Cleanup(func() { _ = os.Chmod(host.path(dir), 0o755) })
	report, err := bound(t, host.options())
	g.Expect(err).To(MatchError(ContainSubstring("clean /usr/local/nvidia: ")))
	g.Expect(report.Reloaded).To(BeEmpty())
}
