package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// knownRows are the results of packages, kept so that a run that was interrupted is continued. The methods of nil do
// nothing.
type knownRows struct {
	*resultfile.File[string, *row]
	choice string
}

// openRows reads the results of runs of this program with the same choice of mutants, at this commit.
func openRows(c *choice) (*knownRows, error) {
	dir := filepath.Join(".cache", "mutations")
	file, err := resultfile.Open(dir, func(r *row) string { return r.Choice + " " + r.Package })
	commit := resultfile.Commit(".")
	return &knownRows{file, fmt.Sprintf("commit `%s`, seed %d, %d mutants a package", commit, c.seed, c.mutants)}, err
}

func (k *knownRows) has(pkg string) bool {
	return k != nil && k.Of(k.choice+" "+pkg) != nil
}

// add keeps the result of a package. One that the time limit cut short is tried again.
func (k *knownRows) add(r *row) error {
	if k == nil || r.Untried > 0 {
		return nil
	}
	r.Choice = k.choice
	return k.Add(r)
}

// writeReport replaces the table in the document.
func (k *knownRows) writeReport(c *choice) error {
	if k == nil {
		return nil
	}
	document, err := os.ReadFile(c.report)
	if err != nil {
		return fmt.Errorf("read the document for the table: %w", err)
	}
	rows := slices.SortedFunc(maps.Values(k.All()), func(a, b *row) int { return cmp.Compare(a.Package, b.Package) })
	rows = slices.DeleteFunc(rows, func(r *row) bool { return r.Choice != k.choice })
	var suites []string
	for _, r := range rows {
		if r.Suites {
			suites = append(suites, r.Package)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n## Mutants\n\nChanges of the code in one place, and whether a test of the package or of one "+
		"that imports it fails ([development.md](development.md#mutants)).\n\n%s, %s, %d cores.", capital(k.choice),
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
	if len(suites) > 0 {
		fmt.Fprintf(&text, " The suites on an API server judged %s, too.", strings.Join(suites, ", "))
	}
	text.WriteString("\n")
	writeTable(&text, rows)
	text.WriteString("\n")
	after := resultfile.ReplacePart(document, "mutants", "make test-mutations", text.String())
	if err = os.WriteFile(c.report, after, 0o644); err != nil { //nolint:gosec // a document
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
