package upgrade_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reported returns the report as text: one line for each node, in order.
func (f *fixture) reported() string {
	report := f.fleet.View().Upgrades
	if report == nil {
		return "none"
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(report.Nodes)) {
		progress := report.Nodes[name]
		line := fmt.Sprintf("%s %s: %s %s", name, progress.State, progress.Reason, progress.Message)
		if progress.Held {
			line += " (held)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
