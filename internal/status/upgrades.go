package status

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

const (
	// maxUpgradeMessage bounds the message of status.upgrade.
	maxUpgradeMessage = 256
	// shortDigest is how many characters of a digest are shown.
	shortDigest = 12
	// remainingStep is what the estimate of the remaining time is rounded up to.
	remainingStep = 10 * time.Second
)

// upgradeOf returns the upgrade of a node in the report; before the first report, what the label of the node shows. It
// is the zero Progress for a node without an upgrade.
func upgradeOf(view *fleet.View, entry *fleet.Entry) upgrade.Progress {
	if view.Upgrades != nil {
		return view.Upgrades.Nodes[entry.Facts.Name]
	}
	state := upgrade.State(entry.Facts.Labels[labels.UpgradeState])
	if state.InProgress() || state == upgrade.StateFailed {
		return upgrade.Progress{State: state}
	}
	return upgrade.Progress{}
}

// upgradeStatus returns the state of all upgrades; nil if none is known. Before the first report it is the previous
// one, and so is the estimate if nothing else has changed. The last target remains when all nodes have it.
func upgradeStatus(in Input, before *v1.UpgradeStatus) *v1.UpgradeStatus {
	report := in.View.Upgrades
	if report == nil {
		return before
	}
	open := report.Pending + report.InProgress + report.Failed
	if open == 0 && (before == nil || report.Done == 0) {
		return nil
	}
	current := &v1.UpgradeStatus{
		Target:     text.Truncate(in.versionOf(report.Target), maxVersion),
		Pending:    int32(report.Pending),
		InProgress: int32(report.InProgress),
		Done:       int32(report.Done),
		Failed:     int32(report.Failed),
		Held:       int32(report.Held),
		Message:    text.Truncate(firstProblem(report), maxUpgradeMessage),
	}
	if before != nil {
		current.Target, current.RemainingSeconds = cmp.Or(current.Target, before.Target), before.RemainingSeconds
		if *current == *before {
			return before
		}
	}
	steps := math.Ceil(report.Remaining.Seconds() / remainingStep.Seconds())
	current.RemainingSeconds = int32(min(steps*remainingStep.Seconds(), math.MaxInt32))
	return current
}

// versionOf returns the image tag of the DaemonSet whose template has this digest; the start of the digest if there is
// none.
func (in Input) versionOf(digest string) string {
	for _, step := range in.Plan.Steps {
		for _, ds := range sortedDaemonSets(in.DaemonSets, step.Operand.Name) {
			if digest == "" || ds.Annotations[labels.TemplateDigest] != digest {
				continue
			}
			for _, container := range ds.Spec.Template.Spec.Containers {
				for _, instance := range step.Instances {
					if instance.Image == container.Image && instance.Version != "" {
						return instance.Version
					}
				}
			}
		}
	}
	return text.Truncate(digest, shortDigest)
}

// firstProblem names the first node whose upgrade has failed, or else the most telling hold; empty if there is none.
func firstProblem(report *upgrade.Report) string {
	worst, name := 0, ""
	for _, node := range slices.Sorted(maps.Keys(report.Nodes)) {
		if rank := problemRank(report.Nodes[node]); rank > worst {
			worst, name = rank, node
		}
	}
	if name == "" {
		return ""
	}
	node := report.Nodes[name]
	reason := cmp.Or(node.Reason, string(node.State))
	return strings.TrimSuffix(fmt.Sprintf("%s (%s): %s", name, reason, node.Message), ": ")
}

// problemRank returns how much the state of a node's upgrade explains why upgrades do not go on; 0 if it does not.
func problemRank(node upgrade.Progress) int {
	switch {
	case node.State == upgrade.StateFailed:
		return 5
	case !node.Held, node.Reason == v1.ReasonUpgradeQueued:
		return 0
	case node.State.InProgress():
		return 4
	case node.Reason == v1.ReasonUpgradeSkipped:
		return 1
	case node.Reason == v1.ReasonUpgradeBudget:
		return 2
	}
	return 3
}

// nodeUpgrade returns the upgrade of a node in status.nodes; nil if there is none.
func nodeUpgrade(found upgrade.Progress) *v1.NodeUpgradeStatus {
	if found == (upgrade.Progress{}) {
		return nil
	}
	status := &v1.NodeUpgradeStatus{
		State: text.Truncate(string(found.State), 63), Held: found.Held, Reason: found.Reason,
		Message: text.Truncate(found.Message, maxMessage),
	}
	if !found.Since.IsZero() {
		status.Since = new(metav1.NewTime(found.Since.Truncate(time.Second)))
	}
	return status
}

// isUpgrading reports whether the driver of the node is outdated or is being upgraded.
func (n node) isUpgrading() bool {
	return n.Outdated || n.upgrade != (upgrade.Progress{}) && n.upgrade.State != upgrade.StateFailed
}

// upgradeCounts counts nodes by their upgrades, excluded ones not.
type upgradeCounts struct {
	// pending and inProgress nodes; failed ones, of which unusable ones have no usable GPU.
	pending, inProgress, failed, unusable int
	// waiting are the nodes that are not ready because they are being upgraded.
	waiting int
	// firstFailed and firstPending are the first such nodes by severity.
	firstFailed, firstPending *node
}

func countUpgrades(nodes []node) upgradeCounts {
	counts := upgradeCounts{}
	for i := range nodes {
		node := &nodes[i]
		if node.Excluded {
			continue
		}
		if node.State == readiness.Progressing && node.Reason == v1.ReasonUpgrading {
			counts.waiting++
		}
		switch {
		case node.upgrade.State == upgrade.StateFailed:
			counts.failed++
			if node.State == readiness.Failed {
				counts.unusable++
			}
			if counts.firstFailed == nil {
				counts.firstFailed = node
			}
		case node.upgrade.State.InProgress(), node.Reason == v1.ReasonUpgrading:
			counts.inProgress++
		case node.isUpgrading():
			counts.pending++
			if counts.firstPending == nil {
				counts.firstPending = node
			}
		}
	}
	return counts
}

// checkFailedUpgrades reports failed upgrades, unless other nodes have failed too.
func checkFailedUpgrades(in Input, status v1.ClusterPolicyStatus) *finding {
	counts := countUpgrades(in.nodes)
	if counts.failed == 0 || int(status.NodeSummary.Degraded) > counts.unusable {
		return nil
	}
	first := counts.firstFailed
	reason, message := cmp.Or(first.upgrade.Reason, first.Reason), cmp.Or(first.upgrade.Message, first.Message)
	found := failure(v1.ReasonUpgradeFailed, strings.TrimSuffix(fmt.Sprintf(
		"the driver upgrade of %d of %d GPU nodes has failed: %s (%s): %s",
		counts.failed, status.NodeSummary.Total, first.Facts.Name, reason, message), ": "))
	found.progressing = counts.pending+counts.inProgress > 0
	return found
}

// checkRunningUpgrades reports upgrades while nodes are not ready for no other cause.
func checkRunningUpgrades(in Input, status v1.ClusterPolicyStatus) *finding {
	counts := countUpgrades(in.nodes)
	if counts.waiting == 0 || counts.waiting != int(status.NodeSummary.Progressing) {
		return nil
	}
	return upgradeFinding(status, counts)
}

// checkUpgrades reports nodes whose driver, or operands whose pods, wait to be replaced.
func checkUpgrades(in Input, status v1.ClusterPolicyStatus) *finding {
	if counts := countUpgrades(in.nodes); counts.pending+counts.inProgress > 0 {
		return upgradeFinding(status, counts)
	}
	if pending := firstWithReason(filterOperands(in, status, isEssential), v1.ReasonUpgradePending); pending != nil {
		return &finding{reason: v1.ReasonUpgradePending, message: operandMessage(pending), progressing: true}
	}
	return nil
}

func upgradeFinding(status v1.ClusterPolicyStatus, counts upgradeCounts) *finding {
	return &finding{
		reason: v1.ReasonUpgradePending, message: upgradeMessage(status, counts), progressing: true,
	}
}

// upgradeMessage counts the nodes that wait for an upgrade or are being upgraded, and names what keeps one from going
// on; it is empty if there are no such nodes.
func upgradeMessage(status v1.ClusterPolicyStatus, counts upgradeCounts) string {
	message := ""
	switch {
	case counts.pending > 0:
		message = fmt.Sprintf("%d of %d GPU nodes wait for a driver upgrade, %d in progress",
			counts.pending, status.NodeSummary.Total, counts.inProgress)
	case counts.inProgress > 0:
		message = fmt.Sprintf("the driver is being upgraded on %d of %d GPU nodes",
			counts.inProgress, status.NodeSummary.Total)
	default:
		return ""
	}
	first := counts.firstPending
	switch {
	case status.Upgrade != nil && status.Upgrade.Message != "":
		message += "; " + status.Upgrade.Message
	case first != nil && first.upgrade == (upgrade.Progress{}):
		// The node itself says what it waits for.
		message += fmt.Sprintf("; %s: %s", first.Facts.Name, first.Message)
	}
	return message
}

// CountUpgrades counts the driver upgrades. Before the first report, the nodes that are known to be outdated or to be
// upgraded count.
func CountUpgrades(view fleet.View) metrics.Upgrades {
	report := view.Upgrades
	if report == nil {
		counts := countUpgrades(worstFirst(view))
		return metrics.Upgrades{Pending: counts.pending, InProgress: counts.inProgress, Failed: counts.failed}
	}
	counts := metrics.Upgrades{
		Pending: report.Pending, InProgress: report.InProgress, Done: report.Done, Failed: report.Failed,
	}
	for _, node := range report.Nodes {
		switch {
		case !node.Held && node.State == upgrade.StateRequired:
			counts.Available++
		case node.Held && needsHelp(node.Reason, report.InProgress > 0):
			counts.Held++
		}
	}
	return counts
}

// needsHelp reports whether an upgrade that is held for this reason does not go on without help. running: others are
// upgraded, so that the budget will have room again.
func needsHelp(reason string, running bool) bool {
	switch reason {
	case v1.ReasonUpgradeManual, v1.ReasonUpgradePaused, v1.ReasonUpgradeSkipped, v1.ReasonUpgradeQueued:
		return false
	case v1.ReasonUpgradeBudget:
		return !running
	}
	return true
}
