package operand

import (
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// Input is what an operand sees: the spec, and plain facts about where the operator runs.
type Input struct {
	// Spec of the policy, with its defaults.
	Spec effective.Spec
	// NodePool is the pool of spec.nodePools whose nodes this is for, nil for nodes of none. Spec is then what
	// holds for these.
	NodePool *v1.NodePoolSpec
	// Namespace of the operator and the operands.
	Namespace string
	// HelperImage is the operator's own image, which holds the on-node program.
	HelperImage string
	// Optional are the kinds that the cluster has besides those of Kubernetes.
	Optional map[OptionalKind]bool
	// Layouts of the container runtimes of the GPU nodes; empty where the plan is for one node.
	Layouts []nodeinfo.Layout
	// Contents are what the operands' references lead to, by kind and name; what is not there does not exist.
	// Nil where nobody has looked.
	Contents map[Reference]Content
	// DriverToolkit are the images of OpenShift's driver toolkit, by release of Red Hat CoreOS. Nil where
	// the cluster has no ImageStream of them, or it cannot be read; unused without UsesDriverToolkit.
	DriverToolkit map[string]string
	// AppliedSpec is what is recorded of the spec where it is applied; empty where nobody applies it.
	AppliedSpec string
	// OperatorMetrics is how the manager serves its own metrics.
	OperatorMetrics MetricsEndpoint
}

// OptionalKind is a kind of object that another project brings to the cluster, and that operands use
// where it is there.
type OptionalKind string

// The kinds of the Prometheus operator.
const (
	ServiceMonitor OptionalKind = "ServiceMonitor"
	PrometheusRule OptionalKind = "PrometheusRule"
)

// HostPaths are the directories on the hosts.
type HostPaths struct {
	// RootFS is the root of the host.
	RootFS string
	// DevChar holds links to character devices.
	DevChar string
	// DriverInstallDir is where the driver container's root file system appears.
	DriverInstallDir string
	// ToolkitInstallDir is where the toolkit puts its binaries.
	ToolkitInstallDir string
	// KubeletRootDir is the kubelet's --root-dir, without a slash at its end.
	KubeletRootDir string
}

// Paths are those of spec.hostPaths, and spec.toolkit.installDir.
func (in Input) Paths() HostPaths {
	spec := in.Spec.HostPaths
	paths := HostPaths{
		RootFS:            spec.RootFS,
		DriverInstallDir:  spec.DriverInstallDir,
		ToolkitInstallDir: in.Spec.Toolkit.InstallDir,
		KubeletRootDir:    strings.TrimRight(spec.KubeletRootDir, "/"),
	}
	paths.DevChar = paths.OnHost("/dev/char")
	return paths
}

// OnHost is the path of a file of the host, below its root.
func (p HostPaths) OnHost(path string) string { return strings.TrimSuffix(p.RootFS, "/") + path }

// Paused tells whether nothing may be written but status.
func (in Input) Paused() bool { return *in.Spec.Paused }

// RuntimeClass is the name of the main RuntimeClass.
func (in Input) RuntimeClass() string { return in.Spec.Operator.RuntimeClass }

// RefreshHelpers tells whether pods may be replaced for the helper image alone.
func (in Input) RefreshHelpers() bool { return *in.Spec.Operator.RefreshHelpers }

// CDIEnabled tells whether GPUs are injected through the Container Device Interface.
func (in Input) CDIEnabled() bool { return *in.Spec.CDI.Enabled }

// OwnToolkit tells whether the container toolkit is the operator's. Else it is the hosts', and its programs are
// where their packages put them.
func (in Input) OwnToolkit() bool { return *in.Spec.Toolkit.Enabled }

// DCGMEnabled tells whether a stand-alone engine of DCGM runs on each node, which the DCGM exporter is
// then to use.
func (in Input) DCGMEnabled() bool { return *in.Spec.DCGM.Enabled }

// NRIEnabled tells whether GPUs are injected through the Node Resource Interface: the toolkit answers the
// container runtime while it makes a container, and changes nothing of its configuration.
func (in Input) NRIEnabled() bool { return in.CDIEnabled() && *in.Spec.CDI.NRIPluginEnabled }

// OpenShift tells whether the GPU nodes are those of OpenShift.
func (in Input) OpenShift() bool {
	return slices.ContainsFunc(in.Layouts, func(l nodeinfo.Layout) bool { return l.Name == nodeinfo.LayoutOpenShift })
}

// InjectsByHook tells whether an OCI hook injects GPUs into every container that asks for them: CRI-O's
// way without CDI, which needs no RuntimeClass. Where some nodes have another runtime, all pods need the
// RuntimeClass, so CRI-O gets its handler, too.
func (in Input) InjectsByHook() bool {
	if in.CDIEnabled() || len(in.Layouts) == 0 {
		return false
	}
	return !slices.ContainsFunc(in.Layouts, func(l nodeinfo.Layout) bool { return l.Runtime != nodeinfo.RuntimeCRIO })
}

// PodRuntimeClass is the RuntimeClass of the pods that get GPUs, or empty if they need none.
func (in Input) PodRuntimeClass() string {
	if in.NRIEnabled() || in.InjectsByHook() {
		return ""
	}
	return in.RuntimeClass()
}

// Helper is the image of the on-node program and how it is pulled. A spec that names no part of
// the validator's image gets the operator's own image.
func (in Input) Helper() v1.ImageSpec { return in.Spec.Validator.ImageSpec }
