package controller_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

// holders are the types with what one pass or reconcile leaves to the next, by their folders.
var holders = map[string]string{
	"../cluster/fleet":          "Fleet",
	"clusterpolicy":             "Reconciler",
	"node":                      "Reconciler",
	"upgrade":                   "memory",
	"healthaction":              "memory",
	"neighbours":                "Watcher",
	"../takeover/otheroperator": "Watcher",
}

// stateless are fields of them that leave nothing to the next one.
var stateless = []string{
	// Signals.
	"Fleet.changed", "Fleet.published", "Fleet.assessed", "Fleet.actionsDue", "Fleet.actionsChanged",
	"Fleet.neighboursChanged",
	"Fleet.mu", "memory.mu", "Watcher.mu", "Watcher.listing", "Watcher.changed",
	"Reconciler.logReaders", // bounds how many logs are read at a time
}

// fieldsOf returns the names of a type's fields, each after the type; embedded ones are options.
func fieldsOf(g Gomega, folder, name string) (fields []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		g.Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(node ast.Node) bool {
			spec, isType := node.(*ast.TypeSpec)
			if !isType || spec.Name.Name != name {
				return true
			}
			structure, isStruct := spec.Type.(*ast.StructType)
			g.Expect(isStruct).To(BeTrue(), "%s of %s is a struct", name, folder)
			for _, field := range structure.Fields.List {
				for _, of := range field.Names {
					fields = append(fields, name+"."+of.Name)
				}
			}
			return false
		})
	}
	return fields
}

// isListed reports whether a text has the field as a whole word.
func isListed(text, field string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(field) + `\b`).MatchString(text)
}

// The table in doc.go lists all state in memory: each field of the types that hold it is named there.
func TestStateIsListed(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("doc.go")
	g.Expect(err).NotTo(HaveOccurred())
	var missing, found []string
	for folder, name := range holders {
		fields := fieldsOf(g, folder, name)
		g.Expect(fields).NotTo(BeEmpty(), "%s of %s", name, folder)
		found = append(found, fields...)
		for _, field := range fields {
			if !isListed(string(text), field) && !slices.Contains(stateless, field) {
				missing = append(missing, field)
			}
		}
	}
	g.Expect(missing).To(BeEmpty())
	for _, field := range stateless {
		g.Expect(found).To(ContainElement(field), "an exception without a field")
		g.Expect(isListed(string(text), field)).To(BeFalse(), "%s is an exception, and the table lists it", field)
	}
}
