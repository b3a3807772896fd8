package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const internalPrefix = "internal/"

// roomOf returns the room of a package, by its folder: a folder of internal, or cmd for the programs. The others have
// none.
func roomOf(folder string) (string, bool) {
	if rest, found := strings.CutPrefix(folder, internalPrefix); found {
		room, _, _ := strings.Cut(rest, "/")
		return room, true
	}
	return "cmd", strings.HasPrefix(folder, "cmd/")
}

// arrows are the rooms that each room imports, itself left out.
type arrows map[string]map[string]bool

// readArrows returns those of the packages in internal and cmd, without their tests.
func readArrows(repo string) (arrows, error) {
	out, err := goList(repo, `{{.ImportPath}} {{join .Imports " "}}`, "./internal/...", "./cmd/...")
	if err != nil {
		return nil, err
	}
	found := arrows{}
	for line := range strings.Lines(out) {
		all := strings.Fields(line)
		from, is := roomOf(strings.TrimPrefix(all[0], module))
		if !is {
			continue
		}
		if found[from] == nil {
			found[from] = map[string]bool{}
		}
		for _, imported := range all[1:] {
			if to, is := roomOf(strings.TrimPrefix(imported, module)); is && to != from {
				found[from][to] = true
			}
		}
	}
	return found, nil
}

// reaches reports whether a path of at least two arrows leads from one room to another.
func (a arrows) reaches(from, to string) bool {
	for next := range a[from] {
		if next != to && (a[next][to] || a.reaches(next, to)) {
			return true
		}
	}
	return false
}

// layer is how many rooms a chain of imports from this room has at most, which fails if the imports have a circle.
func (a arrows) layer(room string, above []string) (int, error) {
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

// ordered returns the rooms from the lowest, which imports none, to the programs.
func (a arrows) ordered() ([]string, error) {
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

// roomGraph draws the imports of rooms, without those that follow from others.
func roomGraph(repo string) (string, error) {
	all, err := readArrows(repo)
	if err != nil {
		return "", err
	}
	rooms, err := all.ordered()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart BT\n")
	for _, from := range rooms {
		for _, to := range slices.Sorted(maps.Keys(all[from])) {
			if !all.reaches(from, to) {
				fmt.Fprintf(&out, "  %s --> %s\n", from, to)
			}
		}
	}
	out.WriteString("```\n")
	return out.String(), nil
}

// roomTable has a row for each room of internal, from the lowest to the highest.
func roomTable(repo string) (string, error) {
	all, err := readArrows(repo)
	if err != nil {
		return "", err
	}
	rooms, err := all.ordered()
	if err != nil {
		return "", err
	}
	_, docs, err := packageDocs(repo)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, room := range rooms {
		doc, is := docs[internalPrefix+room]
		if !is {
			continue
		}
		rows = append(rows, []string{
			code(internalPrefix + room), strings.TrimPrefix(doc, "has no code; its folders answer "),
			strings.Join(slices.Sorted(maps.Keys(all[room])), ", "),
		})
	}
	return table([]string{"room", "what it answers", "imports"}, rows), nil
}
