package main

import (
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// nodeCheckTable has a row for each check of a node, in their order.
func nodeCheckTable(string) (string, error) {
	var rows [][]string
	for _, check := range assess.Checks() {
		reasons := make([]string, 0, len(check.Reasons))
		for _, reason := range check.Reasons {
			reasons = append(reasons, reasonLink(reason))
		}
		rows = append(rows, []string{check.Name, strings.Join(reasons, ", "), check.On.Text, check.Effect.Text})
	}
	return table([]string{"check", "reason", "of a node that", "what it finds"}, rows), nil
}
