package main

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// upgradeDrawing draws the states of a driver upgrade.
func upgradeDrawing(string) (string, error) {
	var out strings.Builder
	fmt.Fprint(&out, "```mermaid\nstateDiagram-v2\n")
	fmt.Fprintf(&out, "    [*] --> %s\n", stateID(upgrade.StateDone))
	declared := map[upgrade.State]bool{}
	for _, t := range upgrade.Transitions() {
		for _, state := range []upgrade.State{t.From, t.To} {
			if !declared[state] {
				declared[state] = true
				fmt.Fprintf(&out, "    state \"%s\" as %s\n", state, stateID(state))
			}
		}
		fmt.Fprintf(&out, "    %s --> %s: %s\n", stateID(t.From), stateID(t.To), strings.ReplaceAll(t.Cause, ":", ","))
	}
	fmt.Fprint(&out, "```\n")
	return out.String(), nil
}

// stateID is the name of a state in the drawing, where - is not allowed.
func stateID(state upgrade.State) string { return strings.ReplaceAll(string(state), "-", "_") }
