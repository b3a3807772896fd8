package operand

import (
	"cmp"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Input is what an operand sees: the spec, and plain facts about where the operator runs.
type Input struct {
	// Spec of the policy, with its defaults.
	Spec effective.Spec
	// Namespace of the operator and the operands.
	Namespace string
	// HelperImage is the operator's own image, which holds the on-node program.
	HelperImage string
	// Optional are the kinds that the cluster has besides those of Kubernetes.
	Optional map[OptionalKind]bool
	// Layouts of the container runtimes of the GPU nodes; empty where the plan is for one node.
	Layouts []Layout
	// Contents are what the spec's references lead to, by kind and name; what is not there does not exist.
	// Nil where nobody has looked.
	Contents map[Reference]Content
	// DriverToolkit are the images of OpenShift's driver toolkit, by release of Red Hat CoreOS. Nil where
	// the cluster has no ImageStream of them, or it cannot be read; unused without UsesDriverToolkit.
	DriverToolkit map[string]string
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

// HostPaths are the directories on the hosts, defaults filled in.
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

// Paths fills the defaults into spec.hostPaths and spec.toolkit.installDir.
func (in Input) Paths() HostPaths {
	spec := v1.HostPathsSpec{}
	if in.Spec.HostPaths != nil {
		spec = *in.Spec.HostPaths
	}
	root := cmp.Or(spec.RootFS, "/")
	paths := HostPaths{
		RootFS:            root,
		DriverInstallDir:  cmp.Or(spec.DriverInstallDir, labels.DriverRoot),
		ToolkitInstallDir: labels.ToolkitInstallDir,
		KubeletRootDir:    strings.TrimRight(cmp.Or(spec.KubeletRootDir, labels.KubeletRootDir), "/"),
	}
	paths.DevChar = paths.OnHost("/dev/char")
	if in.Spec.Toolkit != nil {
		paths.ToolkitInstallDir = cmp.Or(in.Spec.Toolkit.InstallDir, labels.ToolkitInstallDir)
	}
	return paths
}

// OnHost is the path of a file of the host, below its root.
func (p HostPaths) OnHost(path string) string { return strings.TrimSuffix(p.RootFS, "/") + path }

// RuntimeClass is the name of the main RuntimeClass.
func (in Input) RuntimeClass() string {
	if in.Spec.Operator == nil {
		return labels.DefaultRuntimeClass
	}
	return cmp.Or(in.Spec.Operator.RuntimeClass, labels.DefaultRuntimeClass)
}

// RefreshHelpers tells whether pods may be replaced for the helper image alone.
func (in Input) RefreshHelpers() bool {
	return in.Spec.Operator != nil && IsTrue(in.Spec.Operator.RefreshHelpers, false)
}

// CDIEnabled tells whether GPUs are injected through the Container Device Interface.
func (in Input) CDIEnabled() bool {
	return in.Spec.CDI == nil || IsTrue(in.Spec.CDI.Enabled, true)
}

// OwnToolkit tells whether the container toolkit is the operator's. Else it is the hosts', and its programs are
// where their packages put them.
func (in Input) OwnToolkit() bool {
	return in.Spec.Toolkit == nil || IsTrue(in.Spec.Toolkit.Enabled, true)
}

// DCGMEnabled tells whether a stand-alone engine of DCGM runs on each node, which the DCGM exporter is
// then to use.
func (in Input) DCGMEnabled() bool {
	return in.Spec.DCGM != nil && IsTrue(in.Spec.DCGM.Enabled, false)
}

// NRIEnabled tells whether GPUs are injected through the Node Resource Interface: the toolkit answers the
// container runtime while it makes a container, and changes nothing of its configuration.
func (in Input) NRIEnabled() bool {
	return in.Spec.CDI != nil && in.CDIEnabled() && IsTrue(in.Spec.CDI.NRIPluginEnabled, false)
}

// OpenShift tells whether the GPU nodes are those of OpenShift.
func (in Input) OpenShift() bool {
	return slices.ContainsFunc(in.Layouts, func(l Layout) bool { return l.Name == layoutOpenShift })
}

// InjectsByHook tells whether an OCI hook injects GPUs into every container that asks for them: CRI-O's
// way without CDI, which needs no RuntimeClass. Where some nodes have another runtime, all pods need the
// RuntimeClass, so CRI-O gets its handler, too.
func (in Input) InjectsByHook() bool {
	if in.CDIEnabled() || len(in.Layouts) == 0 {
		return false
	}
	return !slices.ContainsFunc(in.Layouts, func(l Layout) bool { return l.Runtime != RuntimeCRIO })
}

// PodRuntimeClass is the RuntimeClass of the pods that get GPUs, or empty if they need none.
func (in Input) PodRuntimeClass() string {
	if in.NRIEnabled() || in.InjectsByHook() {
		return ""
	}
	return in.RuntimeClass()
}

// MIGStrategy is spec.mig.strategy, or empty.
func (in Input) MIGStrategy() string {
	if in.Spec.MIG == nil {
		return ""
	}
	return string(in.Spec.MIG.Strategy)
}

// MIGValues are what templates insert where a program is told how MIG devices are offered.
type MIGValues struct {
	// SetMIGStrategy tells that the spec names a strategy; otherwise the program's own default holds.
	SetMIGStrategy bool
	MIGStrategy    string
	// MonitorMIG: the program looks at the MIG devices of all GPUs.
	MonitorMIG bool
}

// MIG is what the spec says of MIG devices.
func (in Input) MIG() MIGValues {
	strategy := in.MIGStrategy()
	return MIGValues{
		SetMIGStrategy: strategy != "", MIGStrategy: strategy,
		MonitorMIG: strategy != "" && strategy != string(v1.MIGStrategyNone),
	}
}

// Helper is the image of the on-node program and how it is pulled. A spec that names no part of
// the validator's image gets the operator's own image.
func (in Input) Helper() v1.ImageSpec {
	spec := v1.ImageSpec{}
	if in.Spec.Validator != nil {
		spec = in.Spec.Validator.ImageSpec
	}
	return spec
}

// DiscoveryMode is spec.nodeDiscovery.mode, the default filled in.
func (in Input) DiscoveryMode() v1.DiscoveryMode {
	if in.Spec.NodeDiscovery == nil {
		return v1.DiscoveryAuto
	}
	return cmp.Or(in.Spec.NodeDiscovery.Mode, v1.DiscoveryAuto)
}

// IsTrue reads an optional boolean.
func IsTrue(value *bool, fallback bool) bool {
	if value == nil {
		return fallback
	}
	return *value
}

// ValidatorEnv is what spec.validator adds to the environment of the named containers, which are
// checks of the validator wherever they run.
func ValidatorEnv(in Input, containers ...string) map[string][]v1.EnvVar {
	components := map[string]*v1.ValidatorComponentSpec{
		"driver-validation":  in.Spec.Validator.Driver,
		"toolkit-validation": in.Spec.Validator.Toolkit,
		"cuda-validation":    in.Spec.Validator.CUDA,
		"plugin-validation":  in.Spec.Validator.Plugin,
	}
	env := map[string][]v1.EnvVar{}
	for _, name := range containers {
		env[name] = components[name].Env
	}
	return env
}
