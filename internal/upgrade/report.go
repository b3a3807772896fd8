package upgrade

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// report sums up the turns of all nodes.
func (c *Cluster) report(turns []turn) Report {
	report := Report{Nodes: map[string]Progress{}, Done: c.Rest.UpToDate()}
	targets := map[string]int{}
	for i := range c.Nodes {
		n, progress := &c.Nodes[i], turns[i].progress
		if n.Installs && n.outdated() {
			targets[n.Target]++
		}
		if progress == nil {
			if n.UpToDate() {
				report.Done++
			}
			continue
		}
		report.Nodes[n.Name] = *progress
		report.count(progress)
	}
	report.Target = mostFrequent(targets)
	report.Remaining = c.remaining(report.Nodes)
	return report
}

func (r *Report) count(progress *Progress) {
	switch {
	case progress.State == StateFailed:
		r.Failed++
		return
	case progress.State.InProgress():
		r.InProgress++
	default:
		r.Pending++
	}
	if progress.Held {
		r.Held++
	}
}

func mostFrequent(counts map[string]int) string {
	most := ""
	for _, key := range sortedKeys(counts) {
		if counts[key] > counts[most] {
			most = key
		}
	}
	return most
}

// remaining estimates how long the nodes of the report take, from how long those took that are upgraded to the same
// target. Groups are upgraded at the same time. Nodes that wait for a person are left out.
func (c *Cluster) remaining(nodes map[string]Progress) time.Duration {
	left := map[string]int{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		progress, reported := nodes[n.Name]
		if reported && progress.State != StateFailed && !waitsForPerson(progress.Reason) {
			left[n.Group]++
		}
	}
	var longest time.Duration
	for group, count := range left {
		b := c.budget(group)
		width := max(b.drivers.limit, 1)
		if b.policy.MaxParallel > 0 {
			width = min(width, b.policy.MaxParallel)
		}
		rounds := (count + width - 1) / width
		longest = max(longest, time.Duration(rounds)*c.pace(group))
	}
	return longest
}

func waitsForPerson(reason string) bool {
	switch reason {
	case v1.ReasonUpgradeManual, v1.ReasonUpgradePaused, v1.ReasonUpgradeSkipped, v1.ReasonUpgradeUnknownState,
		v1.ReasonUpgradeNodeNotReady:
		return true
	default:
		return false
	}
}

// pace is how long an upgrade of the group has taken on average; 0 if none has ended.
func (c *Cluster) pace(group string) time.Duration {
	rest := c.Rest.group(group)
	total, count := rest.took, rest.upgraded
	for i := range c.Nodes {
		if took, upgraded := c.Nodes[i].took(); upgraded && c.Nodes[i].Group == group {
			total += took
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return total / time.Duration(count)
}
