package campaign

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestRowsAreNamedOnce: each row has points, or states where it is run or why it is not; the tests that it names
// exist.
func TestRowsAreNamedOnce(t *testing.T) {
	g := NewWithT(t)
	there := map[string]bool{}
	g.Expect(filepath.WalkDir(repo, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllSubmatch(text, -1) {
			there[string(match[1])] = true
		}
		return err
	})).To(Succeed())
	seen := map[string]bool{}
	for _, r := range rows() {
		g.Expect(seen).NotTo(HaveKey(r.id))
		seen[r.id] = true
		ways := 0
		for _, way := range []bool{r.points != nil, r.left != "", r.elsewhere != ""} {
			if way {
				ways++
			}
		}
		g.Expect(ways).To(Equal(1), r.id)
		if r.points != nil {
			g.Expect(r.sample).To(BeNumerically(">", 0), r.id)
		}
		for _, name := range testName.FindAllString(r.elsewhere, -1) {
			g.Expect(there).To(HaveKey(name), "row %s", r.id)
		}
	}
}

// Each row is among those of one of ten consecutive runs of make ci.
func TestEachRowHasItsTurn(t *testing.T) {
	always, others := byTurn(slices.DeleteFunc(rows(), func(r row) bool { return r.points == nil }))
	NewWithT(t).Expect(10*(sampleOfCI-len(always))).To(BeNumerically(">=", len(others)),
		"%d rows are always run, and %d have their turn", len(always), len(others))
}
