package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

const module = "github.com/clusterpolicy/gpu-operator/"

// listed has what goList has returned, by its arguments: listing all packages takes seconds.
var listed = map[string]string{}

// goList returns a line in this format for each package of the patterns.
func goList(repo, format string, patterns ...string) (string, error) {
	key := strings.Join(append(patterns, repo, format), "\n")
	if lines, is := listed[key]; is {
		return lines, nil
	}
	list := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...)
	list.Dir = repo
	out, err := list.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("go list: %w: %s", err, failed.Stderr)
	}
	if err == nil {
		listed[key] = string(out)
	}
	return string(out), err
}

// packageDocs returns the first sentence of each package's comment, by its folder, in the order of go list.
func packageDocs(repo string) (folders []string, docs map[string]string, err error) {
	out, err := goList(repo, "{{.ImportPath}}\t{{.Name}}\t{{.Doc}}", "./...")
	if err != nil {
		return nil, nil, err
	}
	docs = map[string]string{}
	for line := range strings.Lines(out) {
		fields := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(fields) < 3 || fields[2] == "" {
			return nil, nil, fmt.Errorf("the package %s has no comment: add a doc.go", fields[0])
		}
		folder := strings.TrimPrefix(fields[0], module)
		folders = append(folders, folder)
		docs[folder] = withoutSubject(fields[2])
	}
	return folders, docs, nil
}

// withoutSubject cuts "Package NAME " or "Command NAME " from a sentence, or the program's name from that of a program.
func withoutSubject(sentence string) string {
	for _, subject := range []string{"Package ", "Command "} {
		if rest, found := strings.CutPrefix(sentence, subject); found {
			_, sentence, _ = strings.Cut(rest, " ")
			break
		}
	}
	return strings.TrimSuffix(sentence, ".")
}

// packageTable has a row for each package of the module.
func packageTable(repo string) (string, error) {
	folders, docs, err := packageDocs(repo)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, folder := range folders {
		rows = append(rows, []string{code(folder), docs[folder]})
	}
	return table([]string{"package", "what it is"}, rows), nil
}
