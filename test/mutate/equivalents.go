package main

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed equivalents.yaml
var equivalentsFile []byte

// equivalent is a mutant that need not be noticed, with the reason. It has no line, which would change. Without a
// package and a function it is that change anywhere.
type equivalent struct {
	Package  string `json:"package"`
	Function string `json:"function"`
	Operator string `json:"operator"`
	Change   string `json:"change"`
	Reason   string `json:"reason"`
}

func readEquivalents(content []byte) ([]equivalent, error) {
	var all []equivalent
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		return nil, fmt.Errorf("list of equivalent mutants: %w", err)
	}
	for _, e := range all {
		if e.Reason == "" {
			return nil, fmt.Errorf("list of equivalent mutants: %s, %s: no reason", e.Function, e.Change)
		}
	}
	return all, nil
}

// withoutEquivalents leaves out the reviewed mutants of a package. An entry for none of its mutants is an error.
func withoutEquivalents(pkg string, mutants []*mutant, all []equivalent) ([]*mutant, error) {
	left := map[equivalent]bool{}
	reviewed, anywhere := map[equivalent]bool{}, map[equivalent]bool{}
	for _, e := range all {
		e.Reason = ""
		switch e.Package {
		case pkg:
			left[e], reviewed[e] = true, true
		case "":
			anywhere[e] = true
		}
	}
	var kept []*mutant
	for _, m := range mutants {
		key := equivalent{Package: pkg, Function: m.function, Operator: m.operator, Change: m.change()}
		delete(left, key)
		if !reviewed[key] && !anywhere[equivalent{Operator: m.operator, Change: m.change()}] {
			kept = append(kept, m)
		}
	}
	for e := range left {
		return nil, fmt.Errorf("list of equivalent mutants: %s has no mutant %s, %s: %s",
			pkg, e.Function, e.Operator, e.Change)
	}
	return kept, nil
}
