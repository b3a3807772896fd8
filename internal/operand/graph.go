package operand

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// Sort checks the graph of the operands and returns them in the order in which they are applied:
// each after those that it requires, otherwise as the catalogue lists them. The catalogue is
// checked whole and with each operand absent, as a spec may turn any of them off. An error is a
// defect of the catalogue.
func Sort(catalogue []Operand) ([]Operand, error) {
	if err := checkNames(catalogue); err != nil {
		return nil, err
	}
	sorted, err := sortByRequirement(catalogue)
	if err != nil {
		return nil, err
	}
	if err := checkStart(sorted); err != nil {
		return nil, err
	}
	for i := range sorted {
		rest := append(append([]Operand{}, sorted[:i]...), sorted[i+1:]...)
		if err := checkStart(rest); err != nil {
			return nil, fmt.Errorf("without operand %s: %w", sorted[i].Name, err)
		}
	}
	return sorted, nil
}

func checkNames(catalogue []Operand) error {
	seen := map[Name]bool{}
	for _, o := range catalogue {
		if seen[o.Name] {
			return fmt.Errorf("operand %s is in the catalogue twice", o.Name)
		}
		seen[o.Name] = true
	}
	for _, o := range catalogue {
		if o.Follows != "" && !seen[o.Follows] {
			return fmt.Errorf("operand %s follows %s, which is not in the catalogue", o.Name, o.Follows)
		}
		for _, r := range o.Requires {
			if !seen[r.On] {
				return fmt.Errorf("operand %s requires %s, which is not in the catalogue", o.Name, r.On)
			}
			if r.Scope == Node && Provers(catalogue, r.Marker) == nil {
				return fmt.Errorf("operand %s waits for marker %s, which nobody writes", o.Name, r.Marker)
			}
		}
	}
	return nil
}

func sortByRequirement(catalogue []Operand) ([]Operand, error) {
	sorted := make([]Operand, 0, len(catalogue))
	placed := map[Name]bool{}
	for len(sorted) < len(catalogue) {
		next, found := firstFree(catalogue, placed)
		if !found {
			return nil, fmt.Errorf("operands require each other in a circle: %s", unplaced(catalogue, placed))
		}
		placed[next.Name] = true
		sorted = append(sorted, next)
	}
	return sorted, nil
}

func firstFree(catalogue []Operand, placed map[Name]bool) (Operand, bool) {
	for _, o := range catalogue {
		if placed[o.Name] {
			continue
		}
		free := true
		for _, first := range predecessors(catalogue, o) {
			free = free && placed[first]
		}
		if free {
			return o, true
		}
	}
	return Operand{}, false
}

// predecessors are the operands that are applied before this one.
func predecessors(catalogue []Operand, o Operand) []Name {
	var names []Name
	for _, r := range o.Requires {
		names = append(names, r.On)
	}
	if len(o.Workloads) == 0 {
		return names
	}
	for _, other := range catalogue {
		if other.Discovers {
			names = append(names, other.Name)
		}
	}
	return names
}

func unplaced(catalogue []Operand, placed map[Name]bool) string {
	var names []string
	for _, o := range catalogue {
		if !placed[o.Name] {
			names = append(names, string(o.Name))
		}
	}
	return strings.Join(names, ", ")
}

// Provers are the operands that can write the marker when these are installed, in the order given;
// the first one does.
func Provers(installed []Operand, marker labels.Marker) []Name {
	var provers []Name
	for _, o := range installed {
		for _, proof := range o.Proves {
			if proof.Marker != marker {
				continue
			}
			if _, there := Find(installed, proof.Of); there || !proof.OnlyWithOperand {
				provers = append(provers, o.Name)
			}
		}
	}
	return provers
}

// Proves tells for each marker that the operand can write whether it is its writer when these
// operands are installed.
func Proves(installed []Operand, o Operand) map[labels.Marker]bool {
	proves := map[labels.Marker]bool{}
	for _, proof := range o.Proves {
		provers := Provers(installed, proof.Marker)
		proves[proof.Marker] = len(provers) > 0 && provers[0] == o.Name
	}
	return proves
}

// Waits are the markers that the operand's pods wait for before their own containers run: those
// of its node requirements that it does not prove itself.
func Waits(installed []Operand, o Operand) []labels.Marker {
	var waits []labels.Marker
	for _, r := range o.Requires {
		if r.Scope != Node {
			continue
		}
		provers := Provers(installed, r.Marker)
		if len(provers) > 0 && provers[0] != o.Name {
			waits = append(waits, r.Marker)
		}
	}
	return waits
}

// checkStart builds the graph of what happens on a node when these operands are installed, and
// refuses a circle: a prover that depends on what it proves, a pod whose GPUs come from an operand that
// waits for it, or a discovery that waits for what it leads to. That a pod with a RuntimeClass does not
// start before its GPUs can be injected is assumed of every injected pod: one without starts, and gets no
// further.
func checkStart(installed []Operand) error {
	after := map[string][]string{}
	for _, o := range installed {
		start, ready := "start of "+string(o.Name), "readiness of "+string(o.Name)
		after[ready] = append(after[ready], start)
		for _, marker := range Waits(installed, o) {
			after[start] = append(after[start], markerNode(marker))
		}
		for _, other := range installed {
			injects := o.Injected && other.Injects
			leadsTo := other.Discovers && len(o.Workloads) > 0
			if injects || leadsTo {
				after[start] = append(after[start], "readiness of "+string(other.Name))
			}
		}
		before := start
		proves := Proves(installed, o)
		for _, proof := range o.Proves {
			if !proves[proof.Marker] {
				continue
			}
			node := markerNode(proof.Marker)
			after[node] = append(after[node], before)
			if _, there := Find(installed, proof.Of); there {
				after[node] = append(after[node], "readiness of "+string(proof.Of))
			}
			before = node
		}
		after[ready] = append(after[ready], before)
	}
	return findCircle(after)
}

func markerNode(m labels.Marker) string { return "marker " + string(m) }

func findCircle(after map[string][]string) error {
	done, onPath := map[string]bool{}, map[string]bool{}
	var path []string
	var visit func(string) error
	visit = func(node string) error {
		if onPath[node] {
			circle := path[slices.Index(path, node):]
			return fmt.Errorf("circle on the node: %s, which waits for %s", strings.Join(circle, ", which waits for "), node)
		}
		if done[node] {
			return nil
		}
		onPath[node] = true
		path = append(path, node)
		for _, dependency := range after[node] {
			if err := visit(dependency); err != nil {
				return err
			}
		}
		onPath[node] = false
		path = path[:len(path)-1]
		done[node] = true
		return nil
	}
	for _, node := range slices.Sorted(maps.Keys(after)) {
		if err := visit(node); err != nil {
			return err
		}
	}
	return nil
}
