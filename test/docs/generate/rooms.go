package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/architecture/rooms"
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

// readArrows returns those of the packages in internal and cmd, without their tests.
func readArrows(repo string) (rooms.Arrows, error) {
	out, err := goList(repo, `{{.ImportPath}} {{join .Imports " "}}`, "./internal/...", "./cmd/...")
	if err != nil {
		return nil, err
	}
	found := rooms.Arrows{}
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

// roomGraph draws the imports of rooms, without those that follow from others.
func roomGraph(repo string) (string, error) {
	all, err := readArrows(repo)
	if err != nil {
		return "", err
	}
	ordered, err := all.Ordered()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart BT\n")
	for _, from := range ordered {
		for _, to := range slices.Sorted(maps.Keys(all[from])) {
			if !all.Reaches(from, to) {
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
	ordered, err := all.Ordered()
	if err != nil {
		return "", err
	}
	_, docs, err := packageDocs(repo)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, room := range ordered {
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
