package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// mostTerms is how many terms a newcomer is asked to learn.
const mostTerms = 45

var glossaryRow = regexp.MustCompile(`(?m)^\| ([a-zA-Z].*?) \| `)

// glossary returns the terms of each row of the glossary.
func glossary(development string) (rows [][]string) {
	_, part, _ := strings.Cut(development, "\n## Glossary\n")
	part, _, _ = strings.Cut(part, "\n## ")
	for _, row := range glossaryRow.FindAllStringSubmatch(part, -1) {
		if row[1] != "word" {
			rows = append(rows, strings.Split(row[1], ", "))
		}
	}
	return rows
}

// unused returns the terms that a code does not have, in comments and text as words, or in names.
func unused(rows [][]string, code string) (found []string) {
	lower := strings.ToLower(code)
	for _, terms := range rows {
		for _, term := range terms {
			term = strings.ToLower(term)
			if !strings.Contains(lower, term) && !strings.Contains(lower, strings.ReplaceAll(term, " ", "")) {
				found = append(found, term)
			}
		}
	}
	return found
}

// The glossary is short, and has only terms that the code of the product uses.
func TestGlossary(t *testing.T) {
	g := NewWithT(t)
	var code strings.Builder
	for _, room := range []string{"api", "cmd", "internal"} {
		g.Expect(filepath.WalkDir(filepath.Join(repo, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})).To(Succeed())
	}
	rows := glossary(read(t, "docs/development.md"))
	g.Expect(len(rows)).To(And(BeNumerically(">", mostTerms/2), BeNumerically("<=", mostTerms)))
	g.Expect(unused(rows, code.String())).To(BeEmpty())

	seeded := glossary("\n## Glossary\n\n| word | meaning |\n|---|---|\n" +
		"| node plan | a |\n| pass, flight | b |\n## Next\n| no | c |\n")
	g.Expect(unused(seeded, "// The pass reads a NodePlan.")).To(Equal([]string{"flight"}))
}
