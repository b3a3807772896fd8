package operand

import "strings"

// layoutRow is a layout, and how the nodes are recognised that have it.
type layoutRow struct {
	distribution Distribution
	// recognise is nil for what a runtime does by itself.
	recognise func(NodeTraits) bool
	Layout
}

// containerd's own drop-in directory. The toolkit adds it to the imports of whichever file the runtime
// reads, so distributions that have none of their own use it too.
const containerdDropIn = "/etc/containerd/conf.d/99-nvidia.toml"

// The directories in which CRI-O looks for OCI hooks: below /run where /usr cannot be written.
const (
	runHooks  = "/run/containers/oci/hooks.d"
	hostHooks = "/usr/share/containers/oci/hooks.d"
)

// fromFile reads the present configuration from this file of the host.
func fromFile(path string) string { return "file=/host" + path }

// layoutOpenShift is the layout, and the distribution, of OpenShift.
const layoutOpenShift = "openshift"

// layouts is the one table of what distributions do to container runtimes. The first row that recognises
// a node tells its distribution; where that has no row for the node's runtime, the rows at the end hold.
//
// kubeadm, EKS and AKS leave containerd as it is. So does GKE up to 1.32.
var layouts = []layoutRow{
	// MicroK8s: its label is on every node of it; the paths are those that NVIDIA's installation guide
	// gives for it. The template is what its start script makes the configuration of.
	{"microk8s", labelled("microk8s.io/cluster"), Layout{
		Name: "microk8s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/snap/microk8s/current/args/containerd-template.toml",
		DropIn:       containerdDropIn,
		Socket:       "/var/snap/microk8s/common/run/containerd.sock",
		ConfigSource: fromFile("/var/snap/microk8s/current/args/containerd.toml"),
	}},
	// OpenShift: NVIDIA's operator puts hooks below /run there, as /usr is read-only; the rest is CRI-O's own.
	{layoutOpenShift, labelled("node.openshift.io/os_id"), Layout{
		Name: layoutOpenShift, Runtime: RuntimeCRIO, HooksDir: runHooks,
		Config: "/etc/crio/config.toml", DropIn: "/etc/crio/crio.conf.d/99-nvidia.conf",
	}},
	// RKE2: its kubelet's version ends in +rke2r1. Its documentation of NVIDIA's operator names the socket;
	// the rest is as with k3s, whose engine it has.
	{"rke2", kubeletSays("+rke2"), Layout{
		Name: "rke2", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		DropIn:       containerdDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k3s: its kubelet's version ends in +k3s1. Its documentation (alternative container runtimes) says that
	// it writes config.toml at each start, with the runtimes that it finds. The template beside that file is
	// not touched: a wrong one keeps the node from starting. containerd is not on the host's PATH, so the
	// configuration is read from the file.
	{"k3s", kubeletSays("+k3s"), Layout{
		Name: "k3s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		DropIn:       containerdDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k0s: its kubelet's version ends in +k0s or +k0s.0; the paths are those that NVIDIA's installation guide
	// gives for it. It merges the files of containerd.d into its configuration.
	{"k0s", kubeletSays("+k0s"), Layout{
		Name: "k0s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:     "/etc/k0s/containerd.d/nvidia.toml",
		DropIn:     containerdDropIn,
		Socket:     "/run/k0s/containerd.sock",
		Executable: "/var/lib/k0s/bin/containerd",
	}},
	// GKE from 1.33 on: NVIDIA's documentation has the toolkit read the file there, as a known issue of asking
	// containerd; the paths are containerd's own. Its kubelet's version ends in -gke.1234.
	{"gke", since("1.33", kubeletSays("-gke.")), Layout{
		Name: "gke", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
		ConfigSource: "file",
	}},
	// Talos and Bottlerocket have read-only root file systems, and configurations that their own tools write.
	// Nothing documents where the toolkit may write.
	{"talos", imageSays("Talos"), Layout{
		Name: "talos", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	{"bottlerocket", imageSays("Bottlerocket"), Layout{
		Name: "bottlerocket", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// The engine of k3s in a distribution that is none of the above.
	{"k3s-engine", func(n NodeTraits) bool { return strings.Contains(n.RuntimeVersion, "-k3s") }, Layout{
		Name: "k3s-engine", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// What the runtimes do by themselves, as NVIDIA's operator has it for every distribution.
	{"", nil, Layout{
		Name: DefaultLayout, Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
	}},
	{"", nil, Layout{
		Name: "crio", Runtime: RuntimeCRIO, HooksDir: hostHooks,
		Config: "/etc/crio/config.toml", DropIn: "/etc/crio/crio.conf.d/99-nvidia.conf",
	}},
	{"", nil, Layout{
		Name: "docker", Runtime: RuntimeDocker, HooksDir: runHooks,
		Config: "/etc/docker/daemon.json", Socket: "/var/run/docker.sock",
	}},
}
