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

const repo = "../.."

// page is a page of the documentation.
type page struct {
	// path in the repository.
	path string
	text string
}

// snippet is a line of a block of code, or a span of code in a line of text.
type snippet struct {
	line int
	text string
	// table is the first cell of the header of the table that the snippet is in, and column its column from 0;
	// column is -1 outside a table.
	table  string
	column int
	// before is the text of the line before the span.
	before string
}

// pages are README.md and all pages in docs.
func pages(t *testing.T) []page {
	t.Helper()
	g := NewWithT(t)
	paths := []string{"README.md"}
	g.Expect(filepath.WalkDir(filepath.Join(repo, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".md") {
			relative, _ := filepath.Rel(repo, path)
			paths = append(paths, relative)
		}
		return err
	})).To(Succeed())
	var all []page
	for _, path := range paths {
		text, err := os.ReadFile(filepath.Join(repo, path))
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, page{path: path, text: string(text)})
	}
	return all
}

// skip leaves pages out, by their paths.
func skip(all []page, paths map[string]string) []page {
	var kept []page
	for _, p := range all {
		if _, skipped := paths[p.path]; !skipped {
			kept = append(kept, p)
		}
	}
	return kept
}

var span = regexp.MustCompile("`([^`]+)`")

// lines calls visit for each line of the page, with whether it is in a block of code. Lines of a block that end with a
// backslash are one with the next.
func (p page) lines(visit func(number int, text string, inBlock bool)) {
	inBlock, continued := false, ""
	for i, line := range strings.Split(p.text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
			continue
		}
		if rest, more := strings.CutSuffix(line, "\\"); inBlock && more {
			continued += rest
			continue
		}
		visit(i+1, continued+line, inBlock)
		continued = ""
	}
}

// code returns all snippets of the page.
func (p page) code() []snippet {
	var all []snippet
	header := ""
	p.lines(func(number int, text string, inBlock bool) {
		isRow := !inBlock && strings.HasPrefix(text, "|")
		switch {
		case !isRow:
			header = ""
		case header == "":
			header = strings.TrimSpace(strings.Split(text, "|")[1])
		}
		if inBlock {
			all = append(all, snippet{line: number, text: text, column: -1})
			return
		}
		for _, at := range span.FindAllStringSubmatchIndex(text, -1) {
			found := snippet{line: number, text: text[at[2]:at[3]], table: header, column: -1, before: text[:at[0]]}
			if isRow {
				found.column = strings.Count(strings.ReplaceAll(found.before, "\\|", ""), "|") - 1
			}
			all = append(all, found)
		}
	})
	return all
}
