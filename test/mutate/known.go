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

// knownRows are the last results of packages, kept so that a run that was interrupted is continued. The methods of nil
// do nothing.
type knownRows struct {
	*resultfile.File[string, *row]
	*choice
	commit string
}

// openRows reads the results of earlier runs of this program.
func openRows(c *choice) (*knownRows, error) {
	dir := filepath.Join(".cache", "mutations")
	file, err := resultfile.Open(dir, func(r *row) string { return rowKey(r.Seed, r.Package) })
	return &knownRows{file, c, resultfile.Commit(".")}, err
}

func rowKey(seed uint64, pkg string) string { return fmt.Sprint(seed, " ", pkg) }

// has reports whether a package was judged at this commit, with as many mutants, and by as many importers or by suites.
func (k *knownRows) has(pkg string) bool {
	if k == nil {
		return false
	}
	r := k.Of(rowKey(k.seed, pkg))
	return r != nil && r.Commit == k.commit && r.Mutants == k.mutants && (r.Suites || r.Importers == k.importers)
}

// add keeps the result of a package. One that the time limit cut short is tried again.
func (k *knownRows) add(r *row) error {
	if k == nil || r.Untried > 0 {
		return nil
	}
	r.Seed, r.Mutants, r.Importers, r.Commit = k.seed, k.mutants, k.importers, k.commit
	return k.Add(r)
}

// ofSeed returns the results with this seed, by package.
func (k *knownRows) ofSeed() []*row {
	rows := slices.SortedFunc(maps.Values(k.All()), func(a, b *row) int { return cmp.Compare(a.Package, b.Package) })
	return slices.DeleteFunc(rows, func(r *row) bool { return r.Seed != k.seed })
}

// writeReport replaces the table in the document.
func (k *knownRows) writeReport() error {
	if k == nil {
		return nil
	}
	document, err := os.ReadFile(k.report)
	if err != nil {
		return fmt.Errorf("read the document for the table: %w", err)
	}
	rows := k.ofSeed()
	var suites, commits []string
	for _, r := range rows {
		if r.Suites {
			suites = append(suites, r.Package)
		}
		commits = append(commits, r.Commit)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n## Mutants\n\nChanges of the code in one place, and whether a test of the package or of one "+
		"that imports it fails ([development.md](development.md#mutants)).\n\nCommit `%s`, seed %d, %s, %d cores.", k.commit,
		k.seed, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU())
	if len(suites) > 0 {
		fmt.Fprintf(&text, " The suites on an API server judged %s, too.", strings.Join(suites, ", "))
	}
	text.WriteString("\n")
	text.WriteString(resultfile.Earlier(commits, k.commit, "\n%d of the packages were last judged at commit `%s`.\n"))
	writeTable(&text, rows)
	text.WriteString("\n")
	after := resultfile.ReplacePart(document, "mutants", "make test-mutations", text.String())
	if err = os.WriteFile(k.report, after, 0o644); err != nil { //nolint:gosec // a document
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
