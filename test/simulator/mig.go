package simulator

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Modes of the MIG manager, for Break.
const (
	// MIGFails: the driver refuses each change of the MIG layout.
	MIGFails Mode = "MIGFails"
	// MIGStuck: a change of the MIG layout does not end.
	MIGStuck Mode = "MIGStuck"
	// MIGLeavesPaused: each change fails as with MIGFails, and the operands stay paused.
	MIGLeavesPaused Mode = "MIGLeavesPaused"
	// MIGReboots: the node boots before a change is applied.
	MIGReboots Mode = "MIGReboots"
)

// migOperand is the MIG manager's name in its deploy label.
const migOperand = "mig-manager"

// migClients are the deploy labels that the MIG manager pauses. It waits for the pods of the first four.
var migClients = []string{"device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm", "client"}

const migAwaited = 4

// migStep is what the MIG manager does next.
type migStep int

const (
	migIdle migStep = iota
	migPending
	migPausing
	migAwaiting
	migApplying
	migValidating
	migResuming
	migReporting
)

// migManager is the state of one run of the MIG manager on a node.
type migManager struct {
	// run is that of its container.
	run string
	// selected is the value of the Node's label that it has read last.
	selected string
	step     migStep
	// target is what the GPUs are to become, and outcome the state that is reported then.
	target  []partition
	outcome string
	// due is when the change has been applied.
	due time.Time
	// booted: the node has booted for the change.
	booted bool
}

// migPod returns the pod whose MIG manager works, nil for none.
func (n *node) migPod() *pod {
	if len(models[n.model].profiles) == 0 || n.migFault() == CrashLoop {
		return nil
	}
	for _, p := range n.pods {
		if p.app == appMIG && p.ready() {
			return p
		}
	}
	return nil
}

func (n *node) migFault() Mode { return n.sim.faults.of(n.name, []string{migOperand}) }

// partition runs the MIG manager: it partitions the GPUs as the Node's label requests, with the operands paused that
// use them.
func (n *node) partition(ctx context.Context, now time.Time) error {
	manager := n.migPod()
	if manager == nil {
		n.mig = migManager{}
		return nil
	}
	if run := manager.instance(); run != n.mig.run {
		n.mig = migManager{run: run}
	}
	for {
		moved, err := n.partitionStep(ctx, now, manager)
		if err != nil || !moved {
			return err
		}
	}
}

// partitionStep makes one step, and reports whether there was one.
func (n *node) partitionStep(ctx context.Context, now time.Time, manager *pod) (moved bool, err error) {
	m := &n.mig
	switch m.step {
	case migIdle:
		return n.selectLayout(ctx, manager)
	case migPending:
		err = n.label(ctx, map[string]string{migStateLabel: "pending"})
	case migPausing:
		err = n.label(ctx, n.clientLabels(true))
	case migAwaiting, migApplying:
		if ended, err := n.awaited(ctx, now); !ended || err != nil {
			return false, err
		}
	case migValidating:
		err = n.restartValidators(ctx)
	case migResuming:
		err = n.resume(ctx)
	case migReporting:
		m.step = migIdle
		return true, n.label(ctx, map[string]string{migStateLabel: m.outcome})
	}
	if err != nil {
		return false, err
	}
	m.step++
	return true, nil
}

// selectLayout begins a change if the label has changed. A layout that the GPUs already have, or that is unknown, needs
// none.
func (n *node) selectLayout(ctx context.Context, manager *pod) (moved bool, err error) {
	selected := n.object.Labels[migLabel]
	if selected == n.mig.selected {
		return false, nil
	}
	layouts, err := n.layouts(ctx, manager)
	if err != nil {
		return false, err
	}
	n.mig.selected, n.mig.booted = selected, n.object.Labels[migStateLabel] == migRebooting
	layout, known := layouts[selected]
	target := partitionsOf(layout, n.partitions)
	switch {
	case selected == "":
	case !known:
		n.mig.outcome, n.mig.step = migFailed, migReporting
	case slices.EqualFunc(target, n.partitions, partition.equal):
		n.mig.outcome, n.mig.step = migSuccess, migReporting
	default:
		n.mig.target, n.mig.step = target, migPending
	}
	return true, nil
}

// layouts returns those that the MIG manager knows: of a user's ConfigMap, or the ones that it generates. A ConfigMap
// that cannot be read has none.
func (n *node) layouts(ctx context.Context, manager *pod) (map[string][]layoutEntry, error) {
	container := manager.mains[0].spec
	file := variable(container, variableFile)
	if file == "" {
		return generatedLayouts(models[n.model]), nil
	}
	data, err := n.configMap(ctx, manager.object.Namespace, configMapAt(manager.object, container, file))
	if err != nil {
		return nil, err
	}
	layouts, err := readLayouts(data["config.yaml"])
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // The MIG manager then knows no layout.
	}
	return layouts, nil
}

// awaited reports whether what the MIG manager waits for has ended: the pods that use GPUs, or the change.
func (n *node) awaited(ctx context.Context, now time.Time) (ended bool, err error) {
	if n.mig.step == migApplying {
		return n.applying(ctx, now)
	}
	if n.hasMIGClients() {
		return false, nil
	}
	n.mig.due = now.Add(n.sim.dice.vary(n.sim.timing.Partition, n.name, migOperand))
	return true, nil
}

// applying reports whether the change has ended. The node may have to boot before.
func (n *node) applying(ctx context.Context, now time.Time) (ended bool, err error) {
	if n.migFault() == MIGReboots && !n.mig.booted {
		return false, n.bootForMIG(ctx)
	}
	return n.applied(now), nil
}

// resume resumes the operands.
func (n *node) resume(ctx context.Context) error {
	if n.migFault() == MIGLeavesPaused {
		return nil
	}
	return n.label(ctx, n.clientLabels(false))
}

// bootForMIG boots the node, once.
func (n *node) bootForMIG(ctx context.Context) error {
	if n.object.Labels[migStateLabel] == migRebooting {
		return nil
	}
	if err := n.label(ctx, map[string]string{migStateLabel: migRebooting}); err != nil {
		return err
	}
	return n.sim.Reboot(ctx, n.name)
}

// applied reports whether the change has ended. It succeeds unless a pod uses the GPUs or they do not support the
// layout.
func (n *node) applied(now time.Time) bool {
	if now.Before(n.mig.due) {
		return false
	}
	if n.mig.due = (time.Time{}); n.migFault() == MIGStuck {
		return false
	}
	n.mig.outcome = migFailed
	unsupported := func(gpu partition) bool { return !models[n.model].supports(gpu.devices) }
	fails := n.migFault() == MIGFails || n.migFault() == MIGLeavesPaused
	if !fails && len(n.gpuUsers()) == 0 && !slices.ContainsFunc(n.mig.target, unsupported) {
		n.partitions, n.mig.outcome = n.mig.target, migSuccess
	}
	return true
}

// clientLabels returns the changes that pause or resume the operands that use GPUs. One that is off stays off; a
// missing label comes back as true.
func (n *node) clientLabels(pause bool) map[string]string {
	changes := map[string]string{}
	for _, operand := range migClients {
		key := deployPrefix + operand
		switch now := n.object.Labels[key]; {
		case now == "false", pause && now == "":
		case pause:
			changes[key] = deployPausedForMIG
		default:
			changes[key] = deployTrue
		}
	}
	return changes
}

// hasMIGClients reports whether pods are left that the MIG manager waits for.
func (n *node) hasMIGClients() bool {
	for _, p := range n.pods {
		if !p.removed && slices.ContainsFunc(p.operands, func(operand string) bool {
			return slices.Contains(migClients[:migAwaited], operand)
		}) {
			return true
		}
	}
	return false
}

// restartValidators deletes the validator's pods, so that the node is validated again.
func (n *node) restartValidators(ctx context.Context) error {
	for _, p := range n.pods {
		if p.app != appValidator || p.ending() {
			continue
		}
		err := n.sim.client.CoreV1().Pods(p.object.Namespace).Delete(ctx, p.object.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &p.uid},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("restart pod %s/%s: %w", p.object.Namespace, p.object.Name, err)
		}
	}
	return nil
}

// label sets labels of the Node.
func (n *node) label(ctx context.Context, labels map[string]string) error {
	return n.patchMetadata(ctx, map[string]any{"labels": labels})
}

// losePartitions makes all GPUs whole, as they are after a boot.
func (n *node) losePartitions() { n.partitions = make([]partition, n.gpus) }
