package nodeinfo

import "strings"

// layoutRow is a layout, with the function that recognises its nodes.
type layoutRow struct {
	distribution Distribution
	// recognise is nil for the defaults of a runtime.
	recognise func(Traits) bool
	Layout
}

// containerdDropIn is in containerd's own drop-in directory, which NVIDIA's operator uses for all distributions. The
// toolkit adds that directory to the imports of the runtime's configuration (config_drop_in.go in
// nvidia-container-toolkit), so that a distribution needs another one only if it writes the configuration itself or
// does not follow imports.
const containerdDropIn = "/etc/containerd/conf.d/99-nvidia.toml"

// rancherDropIn is in the directory that the configuration of k3s and RKE2 imports since 2026 (k3s's pull request
// 13680). Older releases overwrite that file at each start, without the toolkit's import, and find the toolkit
// themselves. containerd's own directory may belong to another containerd on the host, such as Docker's, which does not
// start with a file of a newer version than its own.
const rancherDropIn = "/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml"

// The directories in which CRI-O looks for OCI hooks: below /run where /usr cannot be written.
const (
	runHooks  = "/run/containers/oci/hooks.d"
	hostHooks = "/usr/share/containers/oci/hooks.d"
)

// fromFile makes the toolkit read the current configuration from this file of the host.
func fromFile(path string) string { return "file=/host" + path }

// LayoutOpenShift is the layout, and the distribution, of OpenShift.
const LayoutOpenShift = "openshift"

// layouts is the table of the runtime layouts of all distributions. The first row that recognises a node determines its
// distribution; if that has no row for the node's runtime, the default rows at the end apply.
//
// kubeadm, EKS and AKS do not change containerd's defaults, nor does GKE up to 1.32. "NVIDIA's guide" is "Installing
// the NVIDIA GPU Operator", with its sections on containerd, MicroK8s and RKE2.
var layouts = []layoutRow{
	// MicroK8s: every node has its label. The paths are those of NVIDIA's guide, the drop-in is the guide's default. The
	// start script (run-containerd-with-args) fills variables into the template and keeps its imports. Its containerd is
	// not confined.
	{"microk8s", labelled("microk8s.io/cluster"), Layout{
		Name: "microk8s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/snap/microk8s/current/args/containerd-template.toml",
		DropIn:       containerdDropIn,
		Socket:       "/var/snap/microk8s/common/run/containerd.sock",
		ConfigSource: fromFile("/var/snap/microk8s/current/args/containerd.toml"),
	}},
	// OpenShift: as in NVIDIA's operator, hooks are below /run, as /usr is read-only, and the rest is CRI-O's default.
	{LayoutOpenShift, labelled("node.openshift.io/os_id"), Layout{
		Name: LayoutOpenShift, Runtime: RuntimeCRIO, HooksDir: runHooks,
		Config: "/etc/crio/config.toml", DropIn: "/etc/crio/crio.conf.d/99-nvidia.conf",
	}},
	// RKE2: its kubelet's version ends in +rke2r1. By its documentation (GPU operators), which names the socket, the
	// signal to containerd restarts RKE2, which then adds the runtime to config.toml. The rest is as in k3s, whose engine
	// it has.
	{"rke2", kubeletContains("+rke2"), Layout{
		Name: "rke2", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		DropIn:       "/var/lib/rancher/rke2" + rancherDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k3s: its kubelet's version ends in +k3s1. By its documentation (alternative container runtimes) it writes
	// config.toml at each start, with the runtimes that it finds: runtimes.go in its agent has /usr/local/nvidia/toolkit.
	// The template of that file is not changed, as a wrong one keeps the node from starting (NVIDIA/gpu-operator 992). The
	// configuration is read from the file, as k3s's containerd is not on the host's PATH, and one that is may be Docker's
	// (NVIDIA/nvidia-container-toolkit 982).
	{"k3s", kubeletContains("+k3s"), Layout{
		Name: "k3s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:       "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
		DropIn:       "/var/lib/rancher/k3s" + rancherDropIn,
		Socket:       "/run/k3s/containerd/containerd.sock",
		ConfigSource: fromFile("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
		FindsToolkit: true,
	}},
	// k0s: its kubelet's version ends in +k0s or +k0s.0. The paths are those of its documentation (runtime, using
	// nvidia-container-runtime). It merges the files of containerd.d into its configuration, but not their imports: a file
	// with only imports removes runc and breaks the node (k0sproject/k0s 6547). So the drop-in is in that directory, and
	// the toolkit adds the import to an unused file.
	{"k0s", kubeletContains("+k0s"), Layout{
		Name: "k0s", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config:     "/run/nvidia/toolkit/k0s-unused.toml",
		DropIn:     "/etc/k0s/containerd.d/nvidia.toml",
		Socket:     "/run/k0s/containerd.sock",
		Executable: "/var/lib/k0s/bin/containerd",
	}},
	// GKE from 1.33 on: its kubelet's version ends in -gke.1234. The paths are containerd's defaults. The toolkit reads
	// the file, as NVIDIA's guide for GKE has a known issue with the output of containerd.
	{"gke", since("1.33", kubeletContains("-gke.")), Layout{
		Name: "gke", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
		ConfigSource: "file",
	}},
	// Talos and Bottlerocket have read-only root file systems, and their own tools write the configuration. No path is
	// documented that the toolkit may write: on Talos, extensions install the toolkit (Sidero's guide for NVIDIA GPUs;
	// by NVIDIA/gpu-operator 2382 /etc/containerd is not writable).
	{"talos", osImageStartsWith("Talos"), Layout{
		Name: "talos", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	{"bottlerocket", osImageStartsWith("Bottlerocket"), Layout{
		Name: "bottlerocket", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// The engine of k3s in another distribution.
	{"k3s-engine", func(n Traits) bool { return strings.Contains(n.RuntimeVersion, "-k3s") }, Layout{
		Name: "k3s-engine", Runtime: RuntimeContainerd, HooksDir: runHooks, DropIn: containerdDropIn,
	}},
	// containerd from 2.3 on does not start with a drop-in of a newer version than its own file (its pull request 12891),
	// and reports its newest version to the toolkit whatever that file has. This broke nodes of AKS (NVIDIA/aicr 1688), so
	// the toolkit reads the file, as on GKE.
	{"containerd-file", runtimeSince("2.3"), Layout{
		Name: "containerd-file", Runtime: RuntimeContainerd, HooksDir: runHooks,
		Config: "/etc/containerd/config.toml", DropIn: containerdDropIn, Socket: "/run/containerd/containerd.sock",
		ConfigSource: "file",
	}},
	// The defaults of the runtimes, which NVIDIA's operator uses for every distribution.
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
