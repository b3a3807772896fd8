package operand

import (
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Input is what operands decide from: the spec, and facts about the cluster and the operator.
type Input struct {
	// Spec of the policy, with its defaults.
	Spec effective.Spec
	// NodePool is the node pool whose nodes this is for; nil for nodes of no node pool. Spec is then the
	// spec that applies to the node pool.
	NodePool *v1.NodePoolSpec
	// OfNVIDIADriver: NodePool is the driver of an NVIDIADriver object, whose fields have other paths.
	OfNVIDIADriver bool
	// Namespace of the operator and the operands.
	Namespace string
	// OperatorImage is the image of the manager, which also has gpu-node.
	OperatorImage string
	// Images replace default images of operands.
	Images image.Overrides
	// Proxy of the operator's own environment, for the driver if the spec names none.
	Proxy v1.ProxySpec
	// OpenShiftCluster is what the configuration of OpenShift has for drivers.
	OpenShiftCluster OpenShiftCluster
	// OpenShiftUnread says why it has not been read since the operator has started; empty if it has been, or if the
	// cluster is none of OpenShift.
	OpenShiftUnread string
	// Optional are the optional kinds that the cluster serves.
	Optional map[OptionalKind]bool
	// Layouts of the container runtimes of the GPU nodes; empty if the plan is for one node.
	Layouts []nodeinfo.Layout
	// Contents of the objects that operands reference, by kind and name. An object without an entry does not exist.
	// Nil if the objects have not been read.
	Contents map[Reference]Content
	// NVIDIADrivers are the drivers of NVIDIADriver objects, sorted by name, if the spec uses them. Nil if they have not
	// been read.
	NVIDIADrivers []NVIDIADriver
	// NVIDIADriversUnread says why they have not been read, and what to do; empty if it is unknown.
	NVIDIADriversUnread string
	// DriverToolkit are the images of OpenShift's driver toolkit, by release of Red Hat CoreOS: empty for a tag whose
	// image pods cannot use; the key is empty for a tag without a name. Nil if the cluster has no ImageStream of them, or
	// it cannot be read. Unused if no node needs it.
	DriverToolkit map[string]string
	// AppliedSpec identifies the applied spec, for the annotation labels.AppliedSpec; empty if none is applied.
	AppliedSpec string
	// OperatorMetrics describes how the manager serves its own metrics.
	OperatorMetrics MetricsEndpoint
}

// OptionalKind is a Kubernetes kind of another project, which operands use if the cluster serves it.
type OptionalKind string

// The kinds of the Prometheus operator.
const (
	ServiceMonitor OptionalKind = "ServiceMonitor"
	PrometheusRule OptionalKind = "PrometheusRule"
)

// Paused reports whether only status may be written.
func (in Input) Paused() bool { return *in.Spec.Paused }

// RuntimeClass returns the name of the main RuntimeClass.
func (in Input) RuntimeClass() string { return in.Spec.Operator.RuntimeClass }

// RefreshHelpers reports whether a change of the helper image alone may replace pods.
func (in Input) RefreshHelpers() bool { return *in.Spec.Operator.RefreshHelpers }

// CDIEnabled reports whether GPUs are injected through the Container Device Interface.
func (in Input) CDIEnabled() bool { return *in.Spec.CDI.Enabled }

// OwnToolkit reports whether the operator installs the container toolkit. Otherwise the hosts have it, with its
// programs where their packages install them.
func (in Input) OwnToolkit() bool { return *in.Spec.Toolkit.Enabled }

// DCGMEnabled reports whether a standalone DCGM engine runs on each node, for the DCGM exporter to use.
func (in Input) DCGMEnabled() bool { return *in.Spec.DCGM.Enabled }

// NRIEnabled reports whether GPUs are injected through the Node Resource Interface: the toolkit is a plugin of the
// container runtime and does not change its configuration.
func (in Input) NRIEnabled() bool { return in.CDIEnabled() && *in.Spec.CDI.NRIPluginEnabled }

// OpenShift reports whether any GPU node is a node of OpenShift.
func (in Input) OpenShift() bool {
	return slices.ContainsFunc(in.Layouts, func(l nodeinfo.Layout) bool { return l.Name == nodeinfo.LayoutOpenShift })
}

// OnlyCRIO reports whether the container runtime of every GPU node is CRI-O.
func (in Input) OnlyCRIO() bool {
	other := func(l nodeinfo.Layout) bool { return l.Runtime != nodeinfo.RuntimeCRIO }
	return len(in.Layouts) > 0 && !slices.ContainsFunc(in.Layouts, other)
}

// InjectsByHook reports whether an OCI hook injects GPUs into every container that requests them. CRI-O does so without
// CDI, and needs no RuntimeClass. If some nodes have another runtime, all pods need the RuntimeClass, so CRI-O gets its
// handler, too.
func (in Input) InjectsByHook() bool { return !in.CDIEnabled() && in.OnlyCRIO() }

// PodRuntimeClass returns the RuntimeClass of the pods that get GPUs; empty if they need none.
func (in Input) PodRuntimeClass() string {
	if in.NRIEnabled() || in.InjectsByHook() {
		return ""
	}
	return in.RuntimeClass()
}

// HelperSpec returns spec.validator's image block: that of the helper image, which is the operator image if the block
// names none, with its pull policy and secrets.
func (in Input) HelperSpec() v1.ImageSpec { return in.Spec.Validator.ImageSpec }
