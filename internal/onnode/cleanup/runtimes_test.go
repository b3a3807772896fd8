package cleanup_test

import (
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/hostruntime/hostruntimetest"
)

func TestTheContainerRuntimesConfiguration(t *testing.T) {
	const toolkit = "usr/local/nvidia/toolkit/"
	const program = toolkit + "nvidia-container-runtime"
	names := `BinaryName = "/` + program + `"` + "\n"
	for name, test := range map[string]struct {
		file, content string
		// removed: the file and the toolkit's programs are.
		fileRemoved, toolkitRemoved bool
		left                        types.GomegaMatcher
	}{
		"a drop-in of the toolkit": {
			file: "etc/containerd/conf.d/99-nvidia.toml", content: names,
			fileRemoved: true, toolkitRemoved: true, left: BeEmpty()},
		"a drop-in of CRI-O": {
			file: "etc/crio/crio.conf.d/99-nvidia.conf", content: `runtime_path = "/` + program + `"`,
			fileRemoved: true, toolkitRemoved: true, left: BeEmpty()},
		"a hook": {
			file: "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", content: `{"hook":{"path":"/` + program + `-hook"}}`,
			fileRemoved: true, toolkitRemoved: true, left: BeEmpty()},
		"a drop-in of the host's own toolkit": {
			file: "etc/containerd/conf.d/99-nvidia.toml", content: `BinaryName = "/usr/bin/nvidia-container-runtime"`,
			toolkitRemoved: true, left: BeEmpty()},
		"a configuration without the toolkit": {
			file: "etc/docker/daemon.json", content: `{}`, toolkitRemoved: true, left: BeEmpty()},
		"a configuration to which a killed toolkit has added itself": {
			file: "etc/docker/daemon.json", content: `{"runtimes":{"nvidia":{"path":"/` + program + `"}}}`, toolkitRemoved: true,
			left: left("/etc/docker/daemon.json", "names programs in /usr/local/nvidia/toolkit/")},
		"a default runtime in a drop-in of containerd": {
			file: "etc/containerd/conf.d/99-nvidia.toml", content: "default_runtime_name = \"nvidia\"\n" + names,
			left: ContainElement(HaveField("Why", ContainSubstring("makes the toolkit's runtime the default")))},
		"a default runtime of Docker": {
			file:    "etc/docker/daemon.json",
			content: `{"default-runtime": "nvidia", "runtimes":{"nvidia":{"path":"/` + program + `"}}}`,
			left:    ContainElement(HaveField("Why", ContainSubstring("by /etc/docker/daemon.json")))},
		"the usual default runtime": {
			file: "etc/containerd/conf.d/99-nvidia.toml", content: "default_runtime_name = \"runc\"\n" + names,
			fileRemoved: true, toolkitRemoved: true, left: BeEmpty()},
		"a file that the spec names": {
			file: "opt/runtime/nvidia.toml", content: names, fileRemoved: true, toolkitRemoved: true, left: BeEmpty()},
		"a container of containerd that was created with the toolkit": {
			file: "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c1/runtime", content: "/" + program,
			left: ContainElement(And(HaveField("Path", "/"+program),
				HaveField("Why", "container c1 was created with it"), HaveField("Busy", true)))},
		"a container of containerd that was created without it": {
			file: "run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/runtime", content: "runc",
			toolkitRemoved: true, left: BeEmpty()},
		"a container of CRI-O that was created with the toolkit": {
			file: "proc/88/cmdline", content: "conmon\x00-r\x00/" + program + "\x00",
			left: ContainElement(And(HaveField("Path", "/"+program), HaveField("Why", "process 88 () uses it"),
				HaveField("Busy", true)))},
	} {
		t.Run(name, func(t *testing.T) {
			g, host := NewWithT(t), newTree(t)
			host.operatingSystem()
			files := []string{
				program, toolkit + "libnvidia-container.so.1", toolkit + ".config/nvidia-container-runtime/config.toml",
			}
			for _, file := range files {
				host.write(file, "")
			}
			host.write(test.file, test.content)
			options := host.options()
			options.RuntimeFiles = []string{"/opt/runtime/nvidia.toml"}
			report, err := cleanup.Run(options)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.Left).To(test.left)
			_, err = os.Lstat(host.path(test.file))
			g.Expect(os.IsNotExist(err)).To(Equal(test.fileRemoved), test.file)
			for _, file := range files {
				_, err = os.Lstat(host.path(file))
				g.Expect(os.IsNotExist(err)).To(Equal(test.toolkitRemoved), file)
			}
		})
	}
}

// The toolkit writes into the files of the layouts that the operator knows.
func TestAllLayoutsAreKnown(t *testing.T) {
	runtimes := []string{nodeinfo.RuntimeContainerd, nodeinfo.RuntimeCRIO, nodeinfo.RuntimeDocker}
	traits := []nodeinfo.Traits{
		{}, {Kubelet: "v1.34.1+k3s1"}, {Kubelet: "v1.34.1+rke2r1"}, {Kubelet: "v1.34.1+k0s"}, {Kubelet: "v1.34.1-gke.1"},
		{OSImage: "Talos (v1)"}, {OSImage: "Bottlerocket OS"}, {RuntimeVersion: "2.3.0"},
		{Labels: map[string]string{"microk8s.io/cluster": "true"}},
		{Labels: map[string]string{"node.openshift.io/os_id": "rhcos"}},
	}
	names := map[string]bool{}
	for _, traits := range traits {
		for _, runtime := range runtimes {
			facts := nodeinfo.Facts{Distribution: nodeinfo.DistributionOf(traits), Runtime: runtime}
			layout, known := facts.LayoutByFacts()
			if !known {
				continue
			}
			names[layout.Name] = true
			t.Run(layout.Name, func(t *testing.T) {
				g, host := NewWithT(t), newTree(t)
				host.operatingSystem()
				for _, file := range []string{layout.DropIn, layout.HooksDir + "/oci-nvidia-hook.json"} {
					if file != "" {
						host.write(strings.TrimPrefix(file, "/"), dropIn)
					}
				}
				if strings.HasPrefix(layout.Config, "/run/nvidia/") {
					host.write(layout.Config, dropIn)
				}
				if socket := layout.Socket; socket != "" {
					socket = strings.Replace(socket, "/var/run/", "/run/", 1)
					host.write("opt/read", dropIn)
					host.dir(path.Dir(socket))
					program := hostruntime.ProgramOf(socket)
					pid, _ := hostruntimetest.Start(t, program, host.path(socket), host.path("opt/read"))
					host.process(strconv.Itoa(pid), string(program), "")
					host.replace("opt/read")
					g.Expect(host.clean().Reloaded).To(ConsistOf(socket))
				}
				host.clean()
				for name, content := range host.files() {
					g.Expect(content).NotTo(ContainSubstring("/usr/local/nvidia"), name)
				}
			})
		}
	}
	g := NewWithT(t)
	g.Expect(len(names)).To(BeNumerically(">=", 10), "%v", names)
}
