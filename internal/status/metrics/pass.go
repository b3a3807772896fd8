package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
)

// prefix of all names, as in NVIDIA's operator.
const prefix = "gpu_operator_"

// The values of gpu_operator_reconciliation_status, as in NVIDIA's operator.
const (
	succeeded = 1
	notReady  = 0
	noPolicy  = -1
	failed    = -2
)

// StageState is the stage of a node and its state there.
type StageState struct {
	Stage v1.Stage
	State string
}

// The values of StageState.State.
const (
	Ready       = "ready"
	Progressing = "progressing"
	Degraded    = "degraded"
)

// PassStats has the results of a pass.
type PassStats struct {
	// Status of the active policy; nil if there is none.
	Status *v1.ClusterPolicyStatus
	// Nodes counts the GPU nodes by stage and state; nil if the pass failed before it counted them.
	Nodes map[StageState]int
	// Failed is true if a call to the API server failed.
	Failed bool
	// Discovered is true if some node has discovery labels.
	Discovered bool
	// Frozen is true if the operator changes nothing: the CustomResourceDefinition does not have all fields, the active
	// policy cannot be decoded, or NVIDIA's operator is at work.
	Frozen bool
	// MissingFields is the number of fields that are missing in the CustomResourceDefinition.
	MissingFields int
	// DriverToolkit is what the nodes need of OpenShift's driver toolkit.
	DriverToolkit DriverToolkit
	// AutoUpgrade is true if the spec requests that outdated drivers are replaced.
	AutoUpgrade bool
	// MIGFailed is the number of nodes whose MIG layout could not be applied.
	MIGFailed int
	// Upgrades counts the driver upgrades.
	Upgrades Upgrades
	// HealthActions counts the nodes with unhealthy GPUs.
	HealthActions HealthActions
}

// HealthActions counts the nodes with unhealthy GPUs by the action that was taken, and by what holds the action that
// spec.health.actions requires.
type HealthActions struct {
	Done map[v1.HealthAction]int
	Held map[healthaction.Hold]int
}

// Upgrades counts the nodes by the state of their driver upgrade.
type Upgrades struct {
	Pending, InProgress, Done, Failed int
	// Available nodes are pending, and nothing keeps their upgrade from starting.
	Available int
	// Held nodes are those whose upgrade does not go on without help: no user has excluded or paused it, and it does not
	// only wait for other nodes.
	Held int
}

// DriverToolkit describes what the nodes need of OpenShift's driver toolkit, and what of it is missing.
type DriverToolkit struct {
	// Needed: it builds the driver of a node.
	Needed bool
	// ReleaseUnknown: such a node has no discovery label of its release.
	ReleaseUnknown bool
	// StreamMissing: its ImageStream does not exist.
	StreamMissing bool
	// TagMissing: the ImageStream has no tag for the release of a node.
	TagMissing bool
	// StreamBroken: the ImageStream has a tag without a name, or one of a node's release without an image.
	StreamBroken bool
	// Unread: the ImageStream could not be read, so that the three fields above are not known.
	Unread bool
}

// enabled returns the value of gpu_operator_openshift_driver_toolkit_enabled. As in NVIDIA's operator, tags that are
// missing or broken leave it at 1: rules combine both.
func (d DriverToolkit) enabled() float64 {
	switch {
	case !d.Needed:
		return 0
	case d.ReleaseUnknown, d.StreamMissing, d.Unread:
		return -1
	}
	return 1
}

// reconciliationStatus returns the value of gpu_operator_reconciliation_status.
func (p *PassStats) reconciliationStatus() float64 {
	switch {
	case p.Failed:
		return failed
	case p.Status == nil:
		return noPolicy
	case p.Frozen, p.Status.State != v1.StateReady:
		return notReady
	}
	return succeeded
}

func (p *PassStats) summary() v1.NodeSummary {
	if p.Status == nil || p.Status.NodeSummary == nil {
		return v1.NodeSummary{}
	}
	return *p.Status.NodeSummary
}

type emitFunc func(value float64, labels ...string)

// gauge is computed from the last pass on each collection.
type gauge struct {
	description *prometheus.Desc
	read        func(m *Meter, emit emitFunc)
}

func newGauge(name, help string, read func(m *Meter, emit emitFunc), labels ...string) gauge {
	return gauge{prometheus.NewDesc(prefix+name, help, labels, nil), read}
}

// newScalar returns a gauge without labels.
func newScalar(name, help string, value func(p *PassStats) float64) gauge {
	return newGauge(name, help, func(m *Meter, emit emitFunc) { emit(value(m.last)) })
}

// gauges lists all metrics about the last pass. The first ones have the names of NVIDIA's operator.
var gauges = []gauge{
	newScalar("gpu_nodes_total",
		"GPU nodes, including excluded ones.",
		func(p *PassStats) float64 { return float64(p.summary().Total + p.summary().Excluded) }),
	newScalar("reconciliation_status",
		"1: all is ready, 0: something is not ready, -1: no ClusterPolicy, -2: a call to the API server failed.",
		(*PassStats).reconciliationStatus),
	newGauge("reconciliation_last_success_ts_seconds",
		"When all was last known to be ready, in seconds since 1970; 0 if never since the start.",
		emitLastSuccess),
	newScalar("reconciliation_has_nfd_labels",
		"1: some node has discovery labels, 0: no node has.",
		func(p *PassStats) float64 { return boolValue(p.Discovered) }),
	newScalar("openshift_driver_toolkit_enabled",
		"1: OpenShift's driver toolkit builds the drivers of some nodes, -1: it cannot, as a release or the ImageStream is "+
			"unknown, 0: it is not needed.",
		func(p *PassStats) float64 { return p.DriverToolkit.enabled() }),
	newScalar("openshift_driver_toolkit_nfd_too_old",
		"1: the driver toolkit is needed, and some node has no discovery label of its release.",
		func(p *PassStats) float64 { return boolValue(p.DriverToolkit.ReleaseUnknown) }),
	newScalar("openshift_driver_toolkit_imagestream_missing",
		"1: the driver toolkit is needed, and its ImageStream does not exist.",
		func(p *PassStats) float64 { return boolValue(p.DriverToolkit.StreamMissing) }),
	newScalar("openshift_driver_toolkit_imagestream_broken",
		"1: the driver toolkit is needed, and its ImageStream has a tag without a name or without a usable image.",
		func(p *PassStats) float64 { return boolValue(p.DriverToolkit.StreamBroken) }),
	newScalar("openshift_driver_toolkit_rhcos_tags_missing",
		"1: the ImageStream has no tag for the release of some node.",
		func(p *PassStats) float64 { return boolValue(p.DriverToolkit.TagMissing) }),
	newScalar("driver_auto_upgrade_enabled",
		"1: the spec requests that outdated drivers are replaced without a request.",
		func(p *PassStats) float64 { return boolValue(p.AutoUpgrade) }),
	newScalar("nodes_upgrades_available",
		"Nodes that wait for a driver upgrade that nothing keeps from starting.",
		func(p *PassStats) float64 { return float64(p.Upgrades.Available) }),
	newScalar("nodes_upgrades_pending",
		"Nodes that wait for a driver upgrade.",
		func(p *PassStats) float64 { return float64(p.Upgrades.Pending) }),
	newScalar("nodes_upgrades_in_progress",
		"Nodes whose driver is being upgraded.",
		func(p *PassStats) float64 { return float64(p.Upgrades.InProgress) }),
	newScalar("nodes_upgrades_done",
		"Nodes whose driver is upgraded to the current one.",
		func(p *PassStats) float64 { return float64(p.Upgrades.Done) }),
	newScalar("nodes_upgrades_failed",
		"Nodes whose driver upgrade has failed.",
		func(p *PassStats) float64 { return float64(p.Upgrades.Failed) }),
	// The following are this operator's own.
	newScalar("nodes_upgrades_held",
		"Nodes whose driver upgrade does not go on without help. Upgrades that are paused, excluded or manual, and those "+
			"that wait for other nodes, do not count.",
		func(p *PassStats) float64 { return float64(p.Upgrades.Held) }),
	newGauge("nodes",
		"GPU nodes by the first stage not reached, and state; ready nodes are at Validated.",
		emitNodes, "stage", "state"),
	newScalar("nodes_excluded",
		"GPU nodes that are excluded by their label or by a nodeSelector of the spec.",
		func(p *PassStats) float64 { return float64(p.summary().Excluded) }),
	newScalar("nodes_mig_failed",
		"GPU nodes whose MIG layout could not be applied.",
		func(p *PassStats) float64 { return float64(p.MIGFailed) }),
	newGauge("gpus",
		"GPUs of the nodes that advertise any: usable, or lost if no pod can get them.",
		emitGPUs, "state"),
	newGauge("health_action_nodes",
		"Nodes that are tainted or cordoned because of an unhealthy GPU.",
		emitHealthActions, "action"),
	newGauge("health_action_nodes_held",
		"Nodes with an unhealthy GPU that are not acted on as the spec requires, by what holds the action.",
		emitHealthHolds, "reason"),
	newScalar("definition_missing_fields",
		"Fields of this operator that are missing in the CustomResourceDefinition of ClusterPolicy in the cluster.",
		func(p *PassStats) float64 { return float64(p.MissingFields) }),
	newGauge("undecodable_objects",
		"Objects that the operator cannot decode, as their definition has no bounds; it changes nothing for them.",
		func(m *Meter, emit emitFunc) {
			for kind, count := range m.undecodable {
				emit(float64(count), kind)
			}
		}, "kind"),
	newScalar("frozen",
		"1: the operator changes nothing, as the CustomResourceDefinition of ClusterPolicy does not have all fields, "+
			"the active ClusterPolicy cannot be decoded, or NVIDIA's operator is at work.",
		func(p *PassStats) float64 { return boolValue(p.Frozen) }),
	newGauge("operand_nodes_desired",
		"Nodes that need the operand.",
		perOperand(func(o *v1.OperandStatus) float64 { return float64(o.Desired) }), "operand"),
	newGauge("operand_nodes_ready",
		"Nodes on which the operand is ready, of those that need it.",
		perOperand(func(o *v1.OperandStatus) float64 { return float64(o.Ready) }), "operand"),
	newGauge("condition",
		"1 if the condition of the active ClusterPolicy is True.",
		emitConditions, "type"),
}

func emitLastSuccess(m *Meter, emit emitFunc) {
	if m.success.IsZero() {
		emit(0)
		return
	}
	emit(float64(m.success.Unix()))
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// emitNodes emits all stages and states, so that no series ends when it has no node.
func emitNodes(m *Meter, emit emitFunc) {
	for _, stage := range v1.Stages() {
		for _, state := range []string{Ready, Progressing, Degraded} {
			if state != Ready || stage == v1.StageValidated {
				emit(float64(m.last.Nodes[StageState{stage, state}]), string(stage), state)
			}
		}
	}
}

func emitGPUs(m *Meter, emit emitFunc) {
	gpus := m.last.summary().GPUs
	if gpus == nil {
		gpus = &v1.NodeGPUs{}
	}
	emit(float64(gpus.Usable), "usable")
	emit(float64(gpus.Total-gpus.Usable), "lost")
}

func emitHealthActions(m *Meter, emit emitFunc) {
	for _, action := range []v1.HealthAction{v1.HealthActionTaint, v1.HealthActionCordon} {
		emit(float64(m.last.HealthActions.Done[action]), string(action))
	}
}

func emitHealthHolds(m *Meter, emit emitFunc) {
	for _, hold := range healthaction.Holds() {
		emit(float64(m.last.HealthActions.Held[hold]), string(hold))
	}
}

func perOperand(value func(*v1.OperandStatus) float64) func(*Meter, emitFunc) {
	return func(m *Meter, emit emitFunc) {
		if m.last.Status == nil {
			return
		}
		for i := range m.last.Status.Operands {
			emit(value(&m.last.Status.Operands[i]), m.last.Status.Operands[i].Name)
		}
	}
}

func emitConditions(m *Meter, emit emitFunc) {
	if m.last.Status == nil {
		return
	}
	for _, conditionType := range []string{
		v1.ConditionReady, v1.ConditionAuxiliaryReady, v1.ConditionProgressing, v1.ConditionDegraded,
	} {
		emit(boolValue(meta.IsStatusConditionTrue(m.last.Status.Conditions, conditionType)), conditionType)
	}
}
