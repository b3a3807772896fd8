package operand

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// NewCatalogue returns the operands in the order in which they are applied: each after those that it requires,
// otherwise as listed. It checks the graph as a whole and without each operand, as a spec may disable any of them. An
// error is a defect of the catalogue.
func NewCatalogue(operands ...Operand) (Catalogue, error) {
	catalogue := Catalogue(operands)
	if err := catalogue.checkNames(); err != nil {
		return nil, err
	}
	sorted, err := catalogue.sortByRequirement()
	if err != nil {
		return nil, err
	}
	if err := sorted.checkStart(); err != nil {
		return nil, err
	}
	for i := range sorted {
		rest := append(append(Catalogue{}, sorted[:i]...), sorted[i+1:]...)
		if err := rest.checkStart(); err != nil {
			return nil, fmt.Errorf("without operand %s: %w", sorted[i].Name, err)
		}
	}
	return sorted, nil
}

func (c Catalogue) checkNames() error {
	seen := map[Name]bool{}
	for _, o := range c {
		if seen[o.Name] {
			return fmt.Errorf("operand %s is in the catalogue twice", o.Name)
		}
		seen[o.Name] = true
	}
	for _, o := range c {
		if o.Follows != "" && !seen[o.Follows] {
			return fmt.Errorf("operand %s follows %s, which is not in the catalogue", o.Name, o.Follows)
		}
		for _, r := range o.Requires {
			if !seen[r.On] {
				return fmt.Errorf("operand %s requires %s, which is not in the catalogue", o.Name, r.On)
			}
			if _, exists := c.Prover(r.Marker); r.Scope == Node && !exists {
				return fmt.Errorf("operand %s waits for marker %s, which no operand proves", o.Name, r.Marker)
			}
		}
	}
	return nil
}

func (c Catalogue) sortByRequirement() (Catalogue, error) {
	sorted := make(Catalogue, 0, len(c))
	placed := map[Name]bool{}
	for len(sorted) < len(c) {
		next, found := c.firstFree(placed)
		if !found {
			return nil, fmt.Errorf("operands require each other in a cycle: %s", c.unplaced(placed))
		}
		placed[next.Name] = true
		sorted = append(sorted, next)
	}
	return sorted, nil
}

func (c Catalogue) firstFree(placed map[Name]bool) (Operand, bool) {
	for _, o := range c {
		if placed[o.Name] {
			continue
		}
		free := true
		for _, first := range c.predecessors(o) {
			free = free && placed[first]
		}
		if free {
			return o, true
		}
	}
	return Operand{}, false
}

// predecessors returns the operands that are applied before o.
func (c Catalogue) predecessors(o Operand) []Name {
	var names []Name
	for _, r := range o.Requires {
		names = append(names, r.On)
	}
	if len(o.Workloads) == 0 {
		return names
	}
	for _, other := range c {
		if other.Discovers {
			names = append(names, other.Name)
		}
	}
	return names
}

func (c Catalogue) unplaced(placed map[Name]bool) string {
	var names []string
	for _, o := range c {
		if !placed[o.Name] {
			names = append(names, string(o.Name))
		}
	}
	return strings.Join(names, ", ")
}

// Prover returns the operand that proves the marker if exactly the catalogue is installed: the first one that can, in
// its order. It returns false if none can.
func (c Catalogue) Prover(marker labels.Marker) (Name, bool) {
	for _, o := range c {
		for _, proof := range o.Proofs {
			if proof.Marker != marker {
				continue
			}
			if _, exists := c.Find(proof.Of); exists || !proof.OnlyWithOperand {
				return o.Name, true
			}
		}
	}
	return "", false
}

// WritesMarkers reports for each marker that the operand can prove whether it is the prover if exactly the catalogue is
// installed.
func (c Catalogue) WritesMarkers(o Operand) map[labels.Marker]bool {
	writes := map[labels.Marker]bool{}
	for _, proof := range o.Proofs {
		prover, _ := c.Prover(proof.Marker)
		writes[proof.Marker] = prover == o.Name
	}
	return writes
}

// NodeDependants returns the operands whose pods need one of these operands on their node, directly or through others.
func (c Catalogue) NodeDependants(of func(*Operand) bool) map[Name]bool {
	found := map[Name]bool{}
	for i := range c {
		for _, r := range c[i].Requires {
			on, exists := c.Find(r.On)
			if r.Scope == Node && exists && (of(on) || found[r.On]) {
				found[c[i].Name] = true
			}
		}
	}
	return found
}

// AwaitedMarkers returns the markers that the operand's pods wait for in init containers: those of its node
// requirements that it does not prove itself.
func (c Catalogue) AwaitedMarkers(o Operand) []labels.Marker {
	var awaited []labels.Marker
	for _, r := range o.Requires {
		if r.Scope != Node {
			continue
		}
		if prover, exists := c.Prover(r.Marker); exists && prover != o.Name {
			awaited = append(awaited, r.Marker)
		}
	}
	return awaited
}

// checkStart returns an error if these operands wait for each other in a cycle on a node: a prover that depends on its
// own marker, a pod that waits for an injector which waits for it, or a discovery operand that waits for an operand on
// GPU nodes. It assumes that no injected pod starts before the injector is ready.
func (c Catalogue) checkStart() error {
	after := map[string][]string{}
	for _, o := range c {
		start, ready := "start of "+string(o.Name), "readiness of "+string(o.Name)
		after[ready] = append(after[ready], start)
		for _, marker := range c.AwaitedMarkers(o) {
			after[start] = append(after[start], markerNode(marker))
		}
		for _, other := range c {
			injects := o.NeedsInjection && other.IsInjector
			leadsTo := other.Discovers && len(o.Workloads) > 0
			if injects || leadsTo {
				after[start] = append(after[start], "readiness of "+string(other.Name))
			}
		}
		before := start
		proves := c.WritesMarkers(o)
		for _, proof := range o.Proofs {
			if !proves[proof.Marker] {
				continue
			}
			node := markerNode(proof.Marker)
			after[node] = append(after[node], before)
			if _, exists := c.Find(proof.Of); exists {
				after[node] = append(after[node], "readiness of "+string(proof.Of))
			}
			before = node
		}
		after[ready] = append(after[ready], before)
	}
	return findCycle(after)
}

func markerNode(m labels.Marker) string { return "marker " + string(m) }

func findCycle(after map[string][]string) error {
	done, onPath := map[string]bool{}, map[string]bool{}
	var path []string
	var visit func(string) error
	visit = func(node string) error {
		if onPath[node] {
			cycle := path[slices.Index(path, node):]
			return fmt.Errorf("cycle on the node: %s, which waits for %s", strings.Join(cycle, ", which waits for "), node)
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
