package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UpgradeFacts are what the planner's view of a node follows from.
type UpgradeFacts struct {
	Node *corev1.Node
	// Decisions and Planned are nil for a node that the operator does not manage.
	Decisions *plan.Decisions
	Planned   *plan.NodePlan
	// DaemonSets of the stack by name.
	DaemonSets map[string]*appsv1.DaemonSet
	// Pods on the node.
	Pods NodePods
	// GPUReady: the node is in service.
	GPUReady bool
	Now      time.Time
}

// UpgradeNode returns what the planner of driver upgrades has to know of a node, and the DaemonSet that its new driver
// comes from; nil for none.
func UpgradeNode(of *UpgradeFacts) (upgrade.Node, *appsv1.DaemonSet) {
	object := of.Node
	node := upgrade.Node{
		Name: object.Name, UID: object.UID, State: upgrade.State(object.Labels[labels.UpgradeState]),
		InitiallyCordoned: object.Annotations[labels.UpgradeInitialCordon] == labels.True,
		Requested:         object.Annotations[labels.UpgradeRequested] == labels.True,
		Skip:              object.Labels[labels.UpgradeSkip] == labels.True,
		Unschedulable:     object.Spec.Unschedulable,
		KubeletReady:      readiness.Kubelet(object).State == readiness.Ready,
		BootID:            object.Status.NodeInfo.BootID,
		Pull:              of.pod(of.Pods.Pull),
	}
	if since := readySince(object); node.KubeletReady {
		node.ReadySince = since
	} else {
		node.NotReadySince = since
	}
	if text, recorded := object.Annotations[labels.UpgradeRecord]; recorded {
		record, err := upgrade.DecodeRecord(text)
		if node.Record = record; err != nil {
			node.Unreadable = err.Error()
		}
	}
	var text string
	if text, node.MIG.Recorded = object.Annotations[labels.MIGDrain]; node.MIG.Recorded {
		drain, err := upgrade.DecodeDrain(text)
		node.MIG.Drain, node.MIG.Unreadable = drain, err != nil
	}
	if of.Decisions == nil || of.Planned == nil {
		return node, nil
	}
	return node, of.addPlanned(&node)
}

// readySince returns since when the condition Ready of the node has its status; zero without the condition.
func readySince(node *corev1.Node) time.Time {
	if condition := readiness.NodeCondition(node, corev1.NodeReady); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}

// addPlanned adds what follows from the plan for the node, and returns the DaemonSet of its driver.
func (of *UpgradeFacts) addPlanned(node *upgrade.Node) *appsv1.DaemonSet {
	node.Group = UpgradeGroup(of.Decisions.Input.Spec, of.Planned)
	node.GPUReady = of.GPUReady
	of.addPods(node)
	of.addLayout(node)
	driver, applies := of.Decisions.Driver(of.Planned)
	if !applies || of.Node.Labels[labels.DeployOperands] == labels.False {
		return nil
	}
	node.Installs = installs(driver.Expectation, node)
	labelled := cmp.Or(of.Node.Labels[labels.Pool], of.Node.Labels[labels.DriverAnchor])
	wanted := of.Planned.Pool.Name
	if driver.Expectation != plan.Refused && labelled != "" && wanted != "" && wanted != labelled {
		node.MoveTo = wanted
	}
	ds := of.driverDaemonSet(driver.Operand, cmp.Or(node.MoveTo, labelled, wanted))
	if ds == nil && node.MoveTo != "" {
		// The DaemonSet of a driver pool is created once a node is in the pool.
		ds = of.driverDaemonSet(driver.Operand, labelled)
	}
	if ds != nil {
		node.Target = ds.Annotations[labels.TemplateDigest]
	}
	return ds
}

// addLayout adds what is known of the MIG layout. Whether pods use the GPUs is not read here.
func (of *UpgradeFacts) addLayout(node *upgrade.Node) {
	state, mig := of.Node.Labels[labels.MIGConfigState], &node.MIG
	mig.Partitioned, mig.Off = of.Planned.Partitioner != "", of.Planned.PartitionerOff
	mig.Requested = of.Node.Labels[labels.MIGConfig]
	mig.Ended = state == labels.MIGStateSuccess || state == labels.MIGStateFailed
	mig.Changing = state == labels.MIGStatePending || state == labels.MIGStateRebooting
	if mig.Partitioned {
		mig.Wanted = of.Planned.MIGWanted
	}
	config := of.Planned.Spec.MIGManager.Config
	first, disturbs := of.Decisions.FirstLayout(of.Planned.Facts, of.Node.Labels)
	// The node controller requests a layout at once that disturbs no pod.
	mig.Evict = config != nil && config.OnBusy == v1.MIGBusyDrain && (first == "" || disturbs)
}

// addPods adds the pods of the driver, of the validator and of other operands that need the driver, and whether a
// validator is expected.
func (of *UpgradeFacts) addPods(node *upgrade.Node) {
	catalogue, dependants := of.Decisions.Catalogue, of.dependants(node)
	for _, name := range slices.Sorted(maps.Keys(of.Pods.Operands)) {
		pod := of.Pods.Operands[name]
		o, known := catalogue.Find(name)
		switch {
		case known && o.UpdatesOnDelete:
			node.Driver = of.pod(pod)
		case known && o.Stage == v1.StageValidated:
			node.Validator = of.pod(pod)
		}
		if dependants[name] {
			node.Dependants = append(node.Dependants, *of.pod(pod))
		}
	}
	for i := range of.Planned.Essential {
		onNode := &of.Planned.Essential[i]
		switch {
		case onNode.Stage != v1.StageValidated:
		case onNode.Expectation == plan.Expected:
			node.ValidatorWanted = true
		case onNode.Expectation == plan.PausedByLabel:
			// By k8s-driver-manager while it replaces a driver, and by the MIG manager.
			node.ValidatorWanted, node.ValidatorPaused = true, onNode.Message
		}
	}
}

// dependants returns the operands that need the driver on the node, where it may be being replaced.
func (of *UpgradeFacts) dependants(node *upgrade.Node) map[operand.Name]bool {
	if node.Record == nil && !node.State.InProgress() && node.State != upgrade.StateFailed {
		return nil
	}
	return of.Decisions.Catalogue.NodeDependants(func(o *operand.Operand) bool { return o.UpdatesOnDelete })
}

// installs reports whether the operator installs the driver on the node. With a spec that is refused, an installed
// driver stays, and its upgrade does not end because of the error.
func installs(driver plan.Expectation, node *upgrade.Node) bool {
	switch driver {
	case plan.Expected, plan.PausedByLabel:
		return true
	case plan.Refused:
		return node.Driver != nil || node.Record != nil && node.Record.State.InProgress()
	case plan.HostProvides, plan.OptedOut:
	}
	return false
}

// driverDaemonSet returns the DaemonSet of a driver pool; if there is none, the one that selects the node. It returns
// nil if there is neither.
func (of *UpgradeFacts) driverDaemonSet(driver operand.Name, pool string) *appsv1.DaemonSet {
	var selecting *appsv1.DaemonSet
	for _, ds := range of.DaemonSets {
		if ds.Labels[labels.Operand] != string(driver) || ds.DeletionTimestamp != nil {
			continue
		}
		switch in := ds.Spec.Template.Labels[labels.Pool]; {
		case in != "" && in == pool:
			return ds
		case in == "" && readiness.Selects(ds, of.Node):
			selecting = ds
		}
	}
	return selecting
}

// pod returns what the planner has to know of a pod, nil for nil.
func (of *UpgradeFacts) pod(pod *corev1.Pod) *upgrade.Pod {
	if pod == nil {
		return nil
	}
	return new(UpgradePod(pod, of.Now))
}

// UpgradeGroup returns the group of a node: that of its NVIDIADriver object, or of its node pool if it has an
// upgradePolicy of its own, else the common one, which is empty.
func UpgradeGroup(spec effective.Spec, node *plan.NodePlan) string {
	if node.DriverOwner != "" {
		return "NVIDIADriver " + node.DriverOwner
	}
	for i := range spec.NodePools {
		pool := &spec.NodePools[i]
		if pool.Name == node.NodePool && pool.Driver != nil && pool.Driver.UpgradePolicy != nil {
			return pool.Name
		}
	}
	return ""
}

// UpgradePolicyField returns the path of the upgradePolicy of a node, in the object that has it: the NVIDIADriver
// object, or the policy.
func UpgradePolicyField(spec effective.Spec, node *plan.NodePlan) string {
	switch group := UpgradeGroup(spec, node); {
	case node.DriverOwner != "":
		return "spec.upgradePolicy"
	case group != "":
		return "spec.nodePools[" + group + "].driver.upgradePolicy"
	}
	return "spec.driver.upgradePolicy"
}

// UpgradePodPolicy returns which pods may be evicted by an upgradePolicy that has its defaults, and is at this path. It
// fails if a label selector is wrong.
func UpgradePodPolicy(namespace, field string, spec *v1.DriverUpgradePolicySpec) (upgrade.PodPolicy, error) {
	policy := upgrade.PodPolicy{
		Namespace: namespace, Field: field,
		PodDeletion: upgrade.PodRules{Force: *spec.PodDeletion.Force, DeleteEmptyDir: *spec.PodDeletion.DeleteEmptyDir},
		Drain:       upgrade.PodRules{Force: *spec.Drain.Force, DeleteEmptyDir: *spec.Drain.DeleteEmptyDir},
	}
	var err error
	if policy.Jobs, err = parseSelector(spec.WaitForCompletion.PodSelector); err != nil {
		return policy, fmt.Errorf("correct %s.waitForCompletion.podSelector: %w", field, err)
	}
	if policy.DrainSelector, err = parseSelector(spec.Drain.PodSelector); err != nil {
		return policy, fmt.Errorf("correct %s.drain.podSelector: %w", field, err)
	}
	return policy, nil
}

// parseSelector parses a label selector; it returns nil if the text is empty.
func parseSelector(selector v1.PodSelector) (k8slabels.Selector, error) {
	if selector == "" {
		return nil, nil //nolint:nilnil // No selector and no error: nothing is selected.
	}
	return k8slabels.Parse(selector)
}
