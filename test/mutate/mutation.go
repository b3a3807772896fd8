package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is one error that is dropped.
type mutation struct {
	// number of the mutation in its package, from 1, and the name of the package.
	number int
	pkg    string
	// file is an absolute path, text its content, and line the line of the error.
	file string
	text []byte
	line int
	// begin and end are the offsets of the expression, which prefix and suffix enclose. %d in them is the number.
	begin, end     int
	prefix, suffix string
}

// place returns FILE:LINE, with the base name of the file.
func (m mutation) place() string { return fmt.Sprintf("%s:%d", filepath.Base(m.file), m.line) }

func (m mutation) String() string {
	const most = 80
	dropped := strings.Join(strings.Fields(string(m.text[m.begin:m.end])), " ")
	return m.place() + ": " + dropped[:min(most, len(dropped))]
}

// selector is the environment variable with the number of the mutation that a test binary enables.
const selector = "MUTATION"

// switchSource is added to the package. All mutations are compiled into one binary, and a run enables one of them, as
// building often takes longer than testing.
const switchSource = `package %s

import (
	"os"
	"strconv"
)

var mutationSelected, _ = strconv.Atoi(os.Getenv("` + selector + `"))

func mutationDrop(number int, err error) error {
	if number == mutationSelected {
		return nil
	}
	return err
}
`

// mutated returns the content of a file with all of its mutations.
func mutated(mutations []mutation) []byte {
	type insertion struct {
		at   int
		text string
	}
	var insertions []insertion
	for _, m := range mutations {
		insertions = append(insertions, insertion{m.begin, numbered(m.prefix, m.number)})
	}
	// If two end at the same offset, the later one is inside the other.
	for _, m := range slices.Backward(mutations) {
		insertions = append(insertions, insertion{m.end, numbered(m.suffix, m.number)})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.at - b.at })
	var content []byte
	last, text := 0, mutations[0].text
	for _, i := range insertions {
		content = append(append(content, text[last:i.at]...), i.text...)
		last = i.at
	}
	return append(content, text[last:]...)
}

func numbered(text string, number int) string {
	return strings.ReplaceAll(text, "%d", fmt.Sprint(number))
}

// overlay writes the mutated files and the overlay for go test, whose path it returns. The mutations are in the order
// of their files.
func overlay(directory string, mutations []mutation) (string, error) {
	const private = 0o600
	files := map[string][]mutation{}
	for _, m := range mutations {
		files[m.file] = append(files[m.file], m)
	}
	content := map[string][]byte{
		filepath.Join(filepath.Dir(mutations[0].file), "mutation_switch.go"): fmt.Appendf(nil, switchSource,
			mutations[0].pkg),
	}
	for file, of := range files {
		content[file] = mutated(of)
	}
	replaced := map[string]string{}
	for file, text := range content {
		replaced[file] = filepath.Join(directory, filepath.Base(file))
		if err := os.WriteFile(replaced[file], text, private); err != nil {
			return "", err
		}
	}
	encoded, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "overlay.json")
	return path, os.WriteFile(path, encoded, private)
}
