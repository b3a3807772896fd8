package architecture

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const module = "github.com/clusterpolicy/gpu-operator/"

// Bounds of what a reader has to know before opening a folder: entries of internal, rooms with the programs and the
// packages that are none, arrows between them, and rules about imports.
const (
	maxEntries = 15
	maxRooms   = 22
	maxArrows  = 110
	maxRules   = 25
)

// room is the part of a path that is a room: internal/NAME, or cmd/NAME for a program.
func room(folder string) string {
	parts := strings.SplitN(folder, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// roomArrows are the imports of rooms in internal and of programs in cmd, by room; a room does not import itself.
func roomArrows(files map[string][]string) map[string]map[string]bool {
	arrows := map[string]map[string]bool{}
	for file, imports := range files {
		if !strings.HasPrefix(file, "internal/") && !strings.HasPrefix(file, "cmd/") {
			continue
		}
		from := room(file)
		if arrows[from] == nil {
			arrows[from] = map[string]bool{}
		}
		for _, imported := range imports {
			to := room(strings.TrimPrefix(imported, module))
			if strings.HasPrefix(to, "internal/") && to != from {
				arrows[from][to] = true
			}
		}
	}
	return arrows
}

// circle returns rooms that import each other, by the way from one back to it; nil if there are none.
func circle(arrows map[string]map[string]bool, way []string) []string {
	last := way[len(way)-1]
	for _, next := range slices.Sorted(maps.Keys(arrows[last])) {
		if i := slices.Index(way, next); i >= 0 {
			return append(slices.Clone(way[i:]), next)
		}
		if found := circle(arrows, append(slices.Clone(way), next)); found != nil {
			return found
		}
	}
	return nil
}

func TestRoomsAreFewAndImportOneWay(t *testing.T) {
	g := NewWithT(t)
	entries, err := os.ReadDir(repo + "/internal")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(entries)).To(BeNumerically("<=", maxEntries), "entries of internal")

	arrows := roomArrows(sources(g))
	count := 0
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		count += len(arrows[from])
		g.Expect(circle(arrows, []string{from})).To(BeNil(), "rooms that import each other")
	}
	g.Expect(len(arrows)).To(And(BeNumerically(">", maxEntries), BeNumerically("<=", maxRooms)), "rooms and programs")
	g.Expect(count).To(And(BeNumerically(">", len(arrows)), BeNumerically("<=", maxArrows)), "imports of rooms")
	g.Expect(len(rules(g))).To(BeNumerically("<=", maxRules), "rules of depguard")
}

func TestCirclesOfRoomsAreFound(t *testing.T) {
	g := NewWithT(t)
	arrows := roomArrows(map[string][]string{
		"internal/a/x/x.go": {"fmt", module + "internal/b/y", module + "internal/a/z"},
		"internal/b/y/y.go": {module + "internal/c"},
		"cmd/p/app/main.go": {module + "internal/a/x"},
		"test/t.go":         {module + "internal/a/x"},
	})
	g.Expect(arrows).To(Equal(map[string]map[string]bool{
		"internal/a": {"internal/b": true}, "internal/b": {"internal/c": true}, "cmd/p": {"internal/a": true},
	}))
	g.Expect(circle(arrows, []string{"cmd/p"})).To(BeNil())
	arrows["internal/c"] = map[string]bool{"internal/a": true}
	g.Expect(circle(arrows, []string{"internal/b"})).To(Equal([]string{
		"internal/b", "internal/c", "internal/a", "internal/b",
	}))
}
