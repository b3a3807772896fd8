package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// heading is the title of a column. Columns leave a table that is wider than the terminal in the order of their rank;
// those of rank 0 stay.
type heading struct {
	title string
	rank  int
}

// nodeTable is a table of nodes, or groups of them.
type nodeTable struct {
	// titled: the first line has the titles.
	titled   bool
	headings []heading
	rows     [][]string
	// states are those of the rows, which choose their colours.
	states []overview.Readiness
}

func (t *nodeTable) add(state overview.Readiness, cells ...string) {
	t.rows, t.states = append(t.rows, cells), append(t.states, state)
}

// write writes the table without the columns that do not fit on the terminal, and then a line that names them.
func (t *nodeTable) write(text *strings.Builder, colours palette) {
	rows, states := t.rows, t.states
	if t.titled {
		rows, states = append([][]string{t.titles()}, rows...), append([]overview.Readiness{overview.Ready}, states...)
	}
	left := t.leaving(rows, colours.width)
	var lines []string
	for _, cells := range rows {
		lines = append(lines, strings.Join(without(cells, left), "\t"))
	}
	writeColoured(text, lines, states, colours)
	if t.titled && len(left) > 0 {
		var titles []string
		for _, i := range slices.Sorted(slices.Values(left)) {
			titles = append(titles, t.headings[i].title)
		}
		note := fmt.Sprintf("Left out for the width: %s. See -o wide.\n", strings.Join(titles, ", "))
		text.WriteString(wrap(note, colours.width))
	}
}

func (t *nodeTable) titles() []string {
	var all []string
	for _, h := range t.headings {
		all = append(all, h.title)
	}
	return all
}

// leaving returns the indexes of the columns to leave out, so that the rows are at most as wide as the terminal.
func (t *nodeTable) leaving(rows [][]string, width int) []int {
	var left []int
	for _, i := range t.ranked() {
		if width == 0 || widthOf(rows, left) <= width {
			break
		}
		left = append(left, i)
	}
	return left
}

// ranked returns the indexes of the columns that may leave, in their order.
func (t *nodeTable) ranked() []int {
	var found []int
	for i, h := range t.headings {
		if h.rank > 0 {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return t.headings[a].rank - t.headings[b].rank })
	return found
}

func without(cells []string, left []int) []string {
	var kept []string
	for i, cell := range cells {
		if !slices.Contains(left, i) {
			kept = append(kept, cell)
		}
	}
	return kept
}

// widthOf returns the width of the rows as columns, in characters.
func widthOf(rows [][]string, left []int) int {
	widths := map[int]int{}
	for _, cells := range rows {
		for i, cell := range without(cells, left) {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	width := columnGap * (len(widths) - 1)
	for _, w := range widths {
		width += w
	}
	return width
}

// colourCode matches what takes no room on a terminal.
var colourCode = regexp.MustCompile("\x1b\\[[0-9]+m")

// wrap breaks lines that are wider than a terminal between words, and indents what follows. 0 is no limit. A word that
// is wider stays whole.
func wrap(text string, width int) string {
	if width == 0 {
		return text
	}
	wrapped := &strings.Builder{}
	for line := range strings.Lines(text) {
		wrapped.WriteString(wrapLine(strings.TrimSuffix(line, "\n"), width) + "\n")
	}
	return wrapped.String()
}

func wrapLine(line string, width int) string {
	const indent = "\n  "
	wrapped, used := "", 0
	for i, word := range strings.Split(line, " ") {
		long := utf8.RuneCountInString(colourCode.ReplaceAllString(word, ""))
		switch {
		case i == 0:
			wrapped, used = word, long
		case used+1+long > width:
			wrapped, used = wrapped+indent+word, len(indent)-1+long
		default:
			wrapped, used = wrapped+" "+word, used+1+long
		}
	}
	return wrapped
}
