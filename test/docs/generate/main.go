package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// source computes the text of one generated part from the repository in this directory.
type source func(repo string) (string, error)

// pages are the generated parts of each page, by the names in its markers.
var pages = map[string]map[string]source{
	"docs/architecture/README.md":   {"room-graph": roomGraph, "rooms": roomTable},
	"docs/architecture/node.md":     {"node-checks": nodeCheckTable},
	"docs/architecture/operands.md": {"catalogue": catalogueTable, "graph": catalogueGraph},
	"docs/architecture/packages.md": {"packages": packageTable},
	"docs/architecture/security.md": {"permissions": permissionTable},
	"docs/architecture/status.md":   {"states": stateTables, "reasons": reasonTable},
	"docs/driver-upgrades.md": {
		"upgrade-drawing": upgradeDrawing, "upgrade-states": upgradeStateTable, "upgrade-reasons": upgradeReasonTable,
	},
	"docs/health.md":          {"xids": xidTable},
	"docs/images.md":          {"images": imageTable, "safe-versions": safeVersionTable},
	"docs/kubectl-gpu.md":     {"pod-reasons": podReasonTable},
	"docs/monitoring.md":      {"alerts": alertTable},
	"docs/troubleshooting.md": troubleshooting(),
}

// files are generated as a whole.
var files = map[string]source{"internal/status/reasons/reasons.json": reasonJSON}

func main() {
	repo := flag.String("repo", ".", "directory of the repository")
	flag.Parse()
	for page, parts := range pages {
		exitOn(page, write(*repo, page, parts))
	}
	for file, compute := range files {
		text, err := compute(*repo)
		exitOn(file, err)
		exitOn(file, os.WriteFile(filepath.Join(*repo, file), []byte(text), 0o644))
	}
}

func exitOn(file string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "generate: %s: %v\n", file, err)
		os.Exit(1)
	}
}

// write replaces the generated parts of a page.
func write(repo, page string, parts map[string]source) error {
	file := filepath.Join(repo, page)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for name, compute := range parts {
		if texts[name], err = compute(repo); err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
	}
	replaced, err := replace(string(text), texts)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(replaced), 0o644)
}
