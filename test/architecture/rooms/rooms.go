// Package rooms orders rooms, the folders of internal, by their imports.
package rooms

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Arrows are the rooms that each room imports, itself left out.
type Arrows map[string]map[string]bool

// Reaches reports whether a path of at least two arrows leads from one room to another.
func (a Arrows) Reaches(from, to string) bool {
	for next := range a[from] {
		if next != to && (a[next][to] || a.Reaches(next, to)) {
			return true
		}
	}
	return false
}

// layer is how many rooms a chain of imports from this room has at most, which fails if the imports have a circle.
func (a Arrows) layer(room string, above []string) (int, error) {
	if slices.Contains(above, room) {
		return 0, fmt.Errorf("rooms import each other: %s", strings.Join(append(above, room), " -> "))
	}
	deepest := 0
	for next := range a[room] {
		depth, err := a.layer(next, append(slices.Clone(above), room))
		if err != nil {
			return 0, err
		}
		deepest = max(deepest, depth+1)
	}
	return deepest, nil
}

// Ordered returns the rooms from the lowest, which imports none, to the programs.
func (a Arrows) Ordered() ([]string, error) {
	layers := map[string]int{}
	for room := range a {
		var err error
		if layers[room], err = a.layer(room, nil); err != nil {
			return nil, err
		}
	}
	rooms := slices.Sorted(maps.Keys(a))
	slices.SortStableFunc(rooms, func(x, y string) int { return layers[x] - layers[y] })
	return rooms, nil
}
