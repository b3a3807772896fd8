package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// upgradeReasons is the beginning of the comment of the group of constants with the reasons of driver upgrades.
const upgradeReasons = "Reasons of a node's driver upgrade"

// upgradeReasonTable has a row for each reason of a driver upgrade, with what to do.
func upgradeReasonTable(repo string) (string, error) {
	all, err := reasons(repo)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, r := range all {
		if strings.HasPrefix(r.group, upgradeReasons) {
			rows = append(rows, []string{code(r.value), r.means, r.cause, r.remedy})
		}
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("api/v1 has no group of constants %q: the search has lost its way", upgradeReasons)
	}
	return table([]string{"reason", "meaning", "cause", "remedy"}, rows), nil
}

// upgradeStateTable has a row for each state of a driver upgrade.
func upgradeStateTable(repo string) (string, error) {
	all, err := constantsIn(filepath.Join(repo, "internal", "upgrade"))
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, c := range withValues(all) {
		if c.kind == "State" && c.value != "" {
			rows = append(rows, []string{code(c.value), c.meaning()})
		}
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("internal/upgrade has no constants of the type State: the search has lost its way")
	}
	return table([]string{"label", "meaning"}, rows), nil
}
