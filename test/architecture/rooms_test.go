package architecture

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/architecture/rooms"
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
func roomArrows(files map[string][]string) rooms.Arrows {
	arrows := rooms.Arrows{}
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

func TestRoomsAreFewAndImportOneWay(t *testing.T) {
	g := NewWithT(t)
	entries, err := os.ReadDir(repo + "/internal")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(entries)).To(BeNumerically("<=", maxEntries), "entries of internal")

	arrows := roomArrows(sources(g))
	_, err = arrows.Ordered()
	g.Expect(err).NotTo(HaveOccurred())
	count := 0
	for _, imported := range arrows {
		count += len(imported)
	}
	g.Expect(len(arrows)).To(And(BeNumerically(">", maxEntries), BeNumerically("<=", maxRooms)), "rooms and programs")
	g.Expect(count).To(And(BeNumerically(">", len(arrows)), BeNumerically("<=", maxArrows)), "imports of rooms")
	g.Expect(len(rules(g))).To(BeNumerically("<=", maxRules), "rules of depguard")
}

func TestArrowsOfRooms(t *testing.T) {
	g := NewWithT(t)
	arrows := roomArrows(map[string][]string{
		"internal/a/x/x.go": {"fmt", module + "internal/b/y", module + "internal/a/z"},
		"internal/b/y/y.go": {module + "internal/c"},
		"cmd/p/app/main.go": {module + "internal/a/x"},
		"test/t.go":         {module + "internal/a/x"},
	})
	g.Expect(arrows).To(Equal(rooms.Arrows{
		"internal/a": {"internal/b": true}, "internal/b": {"internal/c": true}, "cmd/p": {"internal/a": true},
	}))
}
