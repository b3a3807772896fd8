package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	. "github.com/onsi/gomega"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`^#{1,6} (.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// TestLinksResolve follows every relative link, with its anchor.
func TestLinksResolve(t *testing.T) {
	g := NewWithT(t)
	broken, links := brokenLinks(pages(t))
	g.Expect(broken).To(BeEmpty())
	g.Expect(links).To(BeNumerically(">", 200), "links; the search has lost its way")
}

func TestBrokenLinksAreFound(t *testing.T) {
	g := NewWithT(t)
	broken, links := brokenLinks([]page{{path: "docs/x.md", text: "# A `b`, c\n\n# A `b`, c\n" +
		"[1](#a-b-c) [2](#a-b-c-1) [3](../Makefile) [4](https://example.com/x) `[5](code.md)`\n```\n[6](block.md)\n```\n" +
		"[7](#none) [8](none.md) [9](../README.md#no-such-section)\n"}})
	g.Expect(links).To(Equal(6))
	g.Expect(broken).To(Equal([]string{
		"docs/x.md:8: #none: no such section in docs/x.md", "docs/x.md:8: none.md: no such file",
		"docs/x.md:8: ../README.md#no-such-section: no such section in README.md",
	}))
}

// brokenLinks returns the links that lead nowhere, and how many relative links there are.
func brokenLinks(all []page) (broken []string, links int) {
	sections := map[string]map[string]bool{}
	for _, p := range all {
		sections[p.path] = anchors(p)
	}
	for _, p := range all {
		p.lines(func(number int, text string, inBlock bool) {
			if inBlock {
				return
			}
			for _, found := range link.FindAllStringSubmatch(span.ReplaceAllString(text, ""), -1) {
				if strings.Contains(found[1], ":") {
					continue
				}
				links++
				if problem := follow(p, found[1], sections); problem != "" {
					broken = append(broken, fmt.Sprintf("%s:%d: %s: %s", p.path, number, found[1], problem))
				}
			}
		})
	}
	return broken, links
}

// follow returns why a link leads nowhere, or nothing.
func follow(from page, link string, sections map[string]map[string]bool) string {
	file, anchor, hasAnchor := strings.Cut(link, "#")
	target := from.path
	if file != "" {
		target = filepath.Join(filepath.Dir(from.path), file)
		if _, err := os.Stat(filepath.Join(repo, target)); err != nil {
			return "no such file"
		}
	}
	if !hasAnchor {
		return ""
	}
	if sections[target] == nil {
		text, err := os.ReadFile(filepath.Join(repo, target))
		if err != nil {
			return err.Error()
		}
		sections[target] = anchors(page{path: target, text: string(text)})
	}
	if !sections[target][anchor] {
		return "no such section in " + target
	}
	return ""
}

// anchors are those that GitHub gives the headings of a page.
func anchors(p page) map[string]bool {
	found := map[string]bool{}
	p.lines(func(_ int, text string, inBlock bool) {
		title := heading.FindStringSubmatch(text)
		if inBlock || title == nil {
			return
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, strings.TrimSpace(linked.ReplaceAllString(title[1], "$1")))
		unique := name
		for i := 1; found[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", name, i)
		}
		found[unique] = true
	})
	return found
}

// TestTheReadmeIsShort: it is the first page, not the manual.
func TestTheReadmeIsShort(t *testing.T) {
	const limit = 10_000
	NewWithT(t).Expect(len(pages(t)[0].text)).To(BeNumerically("<=", limit), "bytes of README.md; move details to docs")
}
