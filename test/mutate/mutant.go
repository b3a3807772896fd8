package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	// number in its package, from 1.
	number int
	// pkg is the folder of the package; function is the function, TYPE.METHOD or variable that is changed.
	pkg, function, operator string
	source                  source
	line                    int
	// begin and end are the offsets of the text that changes, and changed is what becomes of it.
	begin, end int
	changed    string
	edits      []edit
}

// numberHere stands for the number of the mutant in an edit; no source has it.
const numberHere = "\x00"

// edit encloses a part of a file, so that the change can be switched on.
type edit struct {
	begin, end     int
	prefix, suffix string
}

func (m *mutant) place() string {
	return fmt.Sprintf("%s:%d", filepath.Join(m.pkg, filepath.Base(m.source.path)), m.line)
}

// change returns the change on one line, without the place: it is the same after lines were added above.
func (m *mutant) change() string {
	return oneLine(string(m.source.text[m.begin:m.end])) + " => " + oneLine(m.changed)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// diff returns the lines that change, before and after.
func (m *mutant) diff() string {
	text := m.source.text
	begin := bytes.LastIndexByte(text[:m.begin], '\n') + 1
	end := m.end + bytes.IndexByte(append(slices.Clone(text[m.end:]), '\n'), '\n')
	var b strings.Builder
	write := func(sign, lines string) {
		const most = 6
		all := strings.Split(strings.TrimRight(lines, " \t\n"), "\n")
		for _, line := range all[:min(most, len(all))] {
			if strings.TrimSpace(line) != "" {
				fmt.Fprintf(&b, "    %s %s\n", sign, line)
			}
		}
	}
	write("-", string(text[begin:end]))
	write("+", string(text[begin:m.begin])+m.changed+string(text[m.end:end]))
	return b.String()
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s %s, %s: %s", m.place(), m.function, m.operator, m.change())
}

// Environment of a run: the number of the mutant that it enables, and the file for the numbers of those that it
// reaches.
const (
	selectedVariable = "MUTANT"
	reachedVariable  = "MUTANTS_REACHED"
)

// switchImports are the packages that switchSource imports.
var switchImports = []string{"fmt", "os", "strconv", "sync"}

// switchSource is added to the package. All mutants are compiled into one binary, and a run enables one of them, as
// building takes longer than testing.
const switchSource = `package %s

import (
	mutantfmt "fmt"
	mutantos "os"
	mutantstrconv "strconv"
	mutantsync "sync"
)

var (
	mutantSelected, _ = mutantstrconv.Atoi(mutantos.Getenv("` + selectedVariable + `"))
	mutantRecord      = mutantos.Getenv("` + reachedVariable + `")
	mutantsReached    mutantsync.Map
)

func mutantOn(number int) bool {
	if mutantRecord != "" {
		if _, before := mutantsReached.LoadOrStore(number, true); !before {
			file, err := mutantos.OpenFile(mutantRecord, mutantos.O_APPEND|mutantos.O_CREATE|mutantos.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			mutantfmt.Fprintln(file, number)
			file.Close()
		}
	}
	return number == mutantSelected
}

func mutantZero[T any](number int, value T) T {
	if mutantOn(number) {
		var zero T
		return zero
	}
	return value
}

func mutantPick[T any](number int, changed, value T) T {
	if mutantOn(number) {
		return changed
	}
	return value
}

func mutantWithout[T any](number, index int, values ...T) []T {
	if mutantOn(number) {
		return append(append([]T{}, values[:index]...), values[index+1:]...)
	}
	return values
}
`

// span is a part of a changed file that belongs to a mutant.
type span struct {
	begin, end int
	mutant     *mutant
}

// insertion is the beginning or the end of an edit.
type insertion struct {
	at     int
	text   string
	mutant *mutant
	opens  bool
}

// apply returns the text of a file with the switched mutants, and what of it belongs to which of them.
func apply(text []byte, mutants []*mutant) ([]byte, []span) {
	var content []byte
	var spans, open []span
	last := 0
	for _, i := range insertions(mutants) {
		content = append(content, text[last:i.at]...)
		last = i.at
		if i.opens {
			open = append(open, span{begin: len(content), mutant: i.mutant})
			content = append(content, i.text...)
			continue
		}
		content = append(content, i.text...)
		closed := open[len(open)-1]
		open, closed.end = open[:len(open)-1], len(content)
		spans = append(spans, closed)
	}
	return append(content, text[last:]...), spans
}

// insertions returns the ends of all edits in the order of the text: an enclosing edit opens before those inside it,
// and closes after them.
func insertions(mutants []*mutant) []insertion {
	type numbered struct {
		edit
		mutant *mutant
	}
	var edits []numbered
	for _, m := range mutants {
		for _, e := range m.edits {
			edits = append(edits, numbered{e, m})
		}
	}
	slices.SortStableFunc(edits, func(a, b numbered) int {
		if a.begin != b.begin {
			return a.begin - b.begin
		}
		return b.end - a.end
	})
	with := func(text string, m *mutant) string { return strings.ReplaceAll(text, numberHere, fmt.Sprint(m.number)) }
	var all []insertion
	for _, e := range slices.Backward(edits) {
		all = append(all, insertion{e.end, with(e.suffix, e.mutant), e.mutant, false})
	}
	for _, e := range edits {
		all = append(all, insertion{e.begin, with(e.prefix, e.mutant), e.mutant, true})
	}
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	return all
}
