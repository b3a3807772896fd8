package nodeinfo

import "strings"

// layoutRow is a layout, and how the nodes are recognised that have it.
type layoutRow struct {
	distribution Distribution
	// recognise is nil for what a runtime does by itself.
	recognise func(Traits) bool
	Layout
}

// containerd's own drop-in directory, which NVIDIA's operator has for all. The toolkit adds its directory to
// the imports of the file that the runtime reads (config_drop_in.go in nvidia-container-toolkit), so that a
// distribution needs none of its own unless it writes that file itself or does not follow imports.
const containerdDropIn = "/etc/containerd/conf.d/99-nvidia.toml"

// rancherDropIn is in the directory that the configuration of k3s and RKE2 imports since 2026 (k3s's pull
// request 13680). Before, they write that file anew at each start, without what the toolkit adds to it, and
// find the toolkit by themselves. containerd's own directory would be that of another containerd on the host,
// such as Docker's, which refuses to start on a file of a newer version than its own.
const rancherDropIn = "/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml"

// The directories in which CRI-O looks for OCI hooks: below /run where /usr cannot be written.
const (
	runHooks  = "/run/containers/oci/hooks.d"
	hostHooks = "/usr/share/containers/oci/hooks.d"
)

// fromFile reads the present configuration from this file of the host.
func fromFile(path string) string { return "file=/host" + path }

// LayoutOpenShift is the layout, and the distribution, of OpenShift.
const LayoutOpenShift = "openshift"

// layouts is the one table of what distributions do to container runtimes. The first row that recognises
// a node tells its distribution; where that has no row for the node's runtime, the rows at the end hold.
//
// kubeadm, EKS and AKS leave containerd as it is. So does GKE up to 1.32. NVIDIA's guide is "Installing the
// NVIDIA GPU Operator" with its sections on containerd, MicroK8s and RKE2.
var layouts = []layoutRow{
	// MicroK8s: its label is on every node of it; the paths are those that NVIDIA's guide gives for it, the
	// drop-in that guide's default. The template is what its start script (run-containerd-with-args) makes the
	// configuration of, by filling in variables: imports stay. Its containerd is not confined.
	{"microk8s", labelled("microk8s.io/cluster"), Layout{
		Name: "microk8s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/snap/microk8s/current/args/containerd-template.toml",
		DropIn:       containerdDropIn,
		Socket:       "/var/snap/microk8s/common/run/containerd.sock",
		ConfigSource: fromFile("/var/snap/microk8s/current/args/containerd.toml"),
	}},
	// OpenShift: NVIDIA's operator puts hooks below /run there, as /usr is read-only; the rest is CRI-O's own,
	// as that operator has it.
	{LayoutOpenShift, labelled("node.openshift.io/os_id"), Layout{
		Name: LayoutOpenShift, Runtime: RuntimeCRIO, HooksDir: runHooks,
		Config: "/etc/crio/config.toml", DropIn: "/etc/crio/crio.conf.d/99-nvidia.conf",
	}},
	// RKE2: its kubelet's version ends in +rke2r1. Its documentation (GPU operators) names the socket, and says
	// that the signal to containerd restarts RKE2, which then has the runtime in config.toml; the rest is as
	// with k3s, whose engine it has.
	{"rke2", kubeletContains("+rke2"), Layout{
		Name: "rke2", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		DropIn:       "/var/lib/rancher/rke2" + rancherDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k3s: its kubelet's version ends in +k3s1. Its documentation (alternative container runtimes) says that
	// it writes config.toml at each start, with the runtimes that it finds: runtimes.go in its agent has
	// /usr/local/nvidia/toolkit. The template beside that file is not touched: a wrong one keeps the node from
	// starting (NVIDIA/gpu-operator 992). containerd is not on the host's PATH, and what is there may be
	// Docker's (NVIDIA/nvidia-container-toolkit 982), so the configuration is read from the file.
	{"k3s", kubeletContains("+k3s"), Layout{
		Name: "k3s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		DropIn:       "/var/lib/rancher/k3s" + rancherDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k0s: its kubelet's version ends in +k0s or +k0s.0; the paths are those of its documentation (runtime,
	// using nvidia-container-runtime). It merges the files of containerd.d into its configuration, and not what
	// those import: a file with imports alone takes runc away and the node down (k0sproject/k0s 6547). So the
	// drop-in is there, and the file to which the toolkit adds the import is one that nobody reads.
	{"k0s", kubeletContains("+k0s"), Layout{
		Name: "k0s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:     "/run/nvidia/toolkit/k0s-unused.toml",
		DropIn:     "/etc/k0s/containerd.d/nvidia.toml",
		Socket:     "/run/k0s/containerd.sock",
		Executable: "/var/lib/k0s/bin/containerd",
	}},
	// GKE from 1.33 on: NVIDIA's guide for GKE has the toolkit read the file there, as a known issue of asking
	// containerd; the paths are containerd's own. Its kubelet's version ends in -gke.1234.
	{"gke", since("1.33", kubeletContains("-gke.")), Layout{
		Name: "gke", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
		ConfigSource: "file",
	}},
	// Talos and Bottlerocket have read-only root file systems, and configurations that their own tools write.
	// Nothing documents where the toolkit may write: on Talos its extensions bring the toolkit (Sidero's guide
	// for NVIDIA GPUs; NVIDIA/gpu-operator 2382 shows that /etc/containerd cannot be written).
	{"talos", osImageStartsWith("Talos"), Layout{
		Name: "talos", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	{"bottlerocket", osImageStartsWith("Bottlerocket"), Layout{
		Name: "bottlerocket", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// The engine of k3s in a distribution that is none of the above.
	{"k3s-engine", func(n Traits) bool { return strings.Contains(n.RuntimeVersion, "-k3s") }, Layout{
		Name: "k3s-engine", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// containerd from 2.3 on does not start on a drop-in whose version is above that of its own file (its pull
	// request 12891), and tells the toolkit its newest version whatever is in that file: the node goes down, as
	// on AKS (NVIDIA/aicr 1688, which has the toolkit read the file, as on GKE).
	{"containerd-file", runtimeSince("2.3"), Layout{
		Name: "containerd-file", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
		ConfigSource: "file",
	}},
	// What the runtimes do by themselves, as NVIDIA's operator has it for every distribution.
	{"", nil, Layout{
		Name: RuntimeContainerd, Runtime: RuntimeContainerd, HooksDir: runHooks,
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
