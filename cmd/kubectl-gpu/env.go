package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// environment are variables of the operator by name.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// environmentOf returns the variables that assignments of the form NAME=VALUE set; the last one of a name counts.
// Variables that do not change the objects are refused: a misspelt one would have no effect.
func environmentOf(assignments []string) (environment, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	known := operand.ProxyVariables()
	for _, image := range catalogue.Images() {
		known = append(known, image.Variable)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	e := environment{}
	for _, assignment := range assignments {
		name, value, found := strings.Cut(assignment, "=")
		switch {
		case !found:
			return nil, fmt.Errorf("--env %s: give NAME=VALUE", assignment)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("--env %s: the operator reads no such variable for the objects: give one of %s; its own "+
				"image and namespace are --image and --namespace", name, strings.Join(known, ", "))
		}
		e[name] = value
	}
	return e, nil
}
