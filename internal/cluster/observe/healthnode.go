package observe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// HealthFacts are what the view of a node follows from that health actions are planned by.
type HealthFacts struct {
	Node *corev1.Node
	// Managed: the operator manages it as a GPU node.
	Managed bool
	// Decisions, Planned and Assessment are nil for a node that the operator does not manage.
	Decisions  *plan.Decisions
	Planned    *plan.NodePlan
	Assessment *assess.Assessment
}

// HealthNode returns what the planner of health actions has to know of a node.
func HealthNode(of *HealthFacts) healthaction.Node {
	object := of.Node
	node := healthaction.Node{
		Name: object.Name, UID: object.UID, Managed: of.Managed, Unschedulable: object.Spec.Unschedulable,
		Tainted: hasTaint(object, labels.TaintUnhealthy), Consent: object.Annotations[labels.HealthConsent],
		OtherActor: otherActor(object), DriverReady: true,
	}
	node.Upgrading, node.UpgradeCordoned = upgrading(object)
	if drain, err := upgrade.DecodeDrain(object.Annotations[labels.MIGDrain]); err == nil && drain.UID == object.UID &&
		drain.State.InProgress() {
		node.Relayouting = !node.Upgrading
		node.Upgrading, node.UpgradeCordoned = true, node.UpgradeCordoned || drain.Cordoned
	}
	if worksOn(object) {
		node.ReliesOnCordon = nvsentinel
	}
	var text string
	if text, node.HasRecord = object.Annotations[labels.HealthRecord]; node.HasRecord {
		// What cannot be decoded counts as no record, and is removed.
		node.Record, _ = healthaction.DecodeRecord(text)
	}
	if of.Planned == nil {
		return node
	}
	node.Group = of.Planned.NodePool + "/" + object.Labels[labels.GPUProduct]
	node.InService = of.Assessment.InService() && readiness.Kubelet(object).State == readiness.Ready
	if driver, applies := of.Decisions.Driver(of.Planned); applies {
		verdict, assessed := of.Assessment.Operands[driver.Operand]
		node.DriverReady = !assessed || verdict.State == readiness.Ready
	}
	if node.Watched = of.Planned.HealthReporter != ""; node.Watched {
		health := assess.HealthOf(object)
		node.Reported, node.Report = health.Unknown == "", health.Report
	}
	return node
}

// nvsentinel is NVSentinel in texts.
const nvsentinel = "NVSentinel"

// worksOn reports whether NVSentinel works on the node.
func worksOn(node *corev1.Node) bool {
	state := node.Labels[labels.NVSentinelState]
	return state != "" && state != labels.NVSentinelDone
}

// otherActor returns another program that works on the node; empty for none.
func otherActor(node *corev1.Node) string {
	state := node.Labels[labels.MIGConfigState]
	switch {
	case worksOn(node):
		return nvsentinel
	case hasTaint(node, labels.TaintToBeDeleted):
		return "the cluster autoscaler"
	case hasTaint(node, labels.TaintDisrupted):
		return "Karpenter"
	case state == labels.MIGStatePending || state == labels.MIGStateRebooting:
		return "the MIG manager"
	default:
		return ""
	}
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

// upgrading reports whether a driver upgrade, by this operator or by NVIDIA's, has begun on the node and not ended, or
// has left it cordoned; and whether it was this operator's upgrade that has cordoned it.
func upgrading(node *corev1.Node) (works, cordoned bool) {
	works = upgrade.State(node.Labels[labels.UpgradeState]).InProgress()
	record, err := upgrade.DecodeRecord(node.Annotations[labels.UpgradeRecord])
	if err != nil || record.UID != node.UID {
		return works, false
	}
	return works || record.Cordoned || record.State.InProgress(), record.Cordoned
}
