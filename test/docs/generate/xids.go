package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

// xidTable has a row for each kind of Xid.
func xidTable(string) (string, error) {
	var rows [][]string
	for _, rule := range xid.Table() {
		reason := ""
		if rule.Reason != "" {
			reason = code(rule.Reason)
		}
		rows = append(rows, []string{
			ranges(rule.Numbers), rule.Meaning, string(rule.Class), reason, repeated(rule), string(rule.Source),
		})
	}
	return table([]string{"Xid", "meaning", "class", "reason", "if repeated on one GPU, or alone", "source"}, rows), nil
}

// repeated describes what repeated errors mean, or when an error counts.
func repeated(rule xid.Rule) string {
	repeat := rule.Repeat
	if rule.Alone > 0 {
		return fmt.Sprintf("counts only without another Xid in %.0f minute before or after it", rule.Alone.Minutes())
	}
	if repeat.Count == 0 {
		return ""
	}
	times := "times"
	if repeat.Processes {
		times = "processes"
	}
	within := fmt.Sprintf("%.0f minutes", repeat.Within.Minutes())
	if repeat.Within.Hours() >= 1 {
		within = fmt.Sprintf("%.0f hours", repeat.Within.Hours())
	}
	return fmt.Sprintf("%d %s in %s: %s, %s", repeat.Count, times, within, repeat.Class, code(repeat.Reason))
}

// ranges lists numbers, and runs of three and more as a range.
func ranges(numbers []int) string {
	sorted := slices.Sorted(slices.Values(numbers))
	var parts []string
	for len(sorted) > 0 {
		run := 1
		for run < len(sorted) && sorted[run] == sorted[0]+run {
			run++
		}
		if run < 3 {
			run = 1
			parts = append(parts, fmt.Sprint(sorted[0]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[0], sorted[run-1]))
		}
		sorted = sorted[run:]
	}
	return strings.Join(parts, ", ")
}
