package main

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
)

// safeVersionTable returns the table of the minimum safe versions: the newest row of a component and branch is the
// minimum.
func safeVersionTable(string) (string, error) {
	var rows [][]string
	for _, fix := range safeversion.Fixes() {
		branch, fixes := "all", strings.Join(fix.Vulnerabilities, ", ")
		if fix.Branch != 0 {
			branch = fmt.Sprintf("R%d", fix.Branch)
		}
		if fixes == "" {
			fixes = "those of the bulletin"
		}
		bulletin := fix.Bulletin
		if fix.Date != "" {
			bulletin += ", " + fix.Date
		}
		minimum := ""
		if _, isOutdated := safeversion.Check(fix.Component, fix.Version); !isOutdated {
			minimum = "yes"
		}
		rows = append(rows, []string{fix.Component, branch, code(fix.Version), fixes, bulletin, minimum})
	}
	return table([]string{"component", "branch", "version", "fixes", "bulletin", "minimum"}, rows), nil
}
