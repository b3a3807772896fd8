package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// old are the pages that also name what no longer exists.
var old = map[string]string{
	"docs/CHANGELOG.md":   "names what an entry removed or renamed",
	"docs/test-report.md": "is of the commit that it names",
}

// check returns what is wrong with a snippet, or nothing.
type check func(snippet) []string

// wrong returns what is wrong with the code on the pages, by the check.
func wrong(all []page, by check) (found []string) {
	for _, p := range all {
		for _, s := range p.code() {
			for _, problem := range by(s) {
				found = append(found, fmt.Sprintf("%s:%d: %s", p.path, s.line, problem))
			}
		}
	}
	return found
}

// seeded is a page x with mistakes, by which a test shows that its check finds them.
func seeded(text string) []page { return []page{{path: "x", text: text}} }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, path))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

var (
	command  = regexp.MustCompile(`(?:^|[\s;&(])make((?: +[A-Za-z][A-Za-z0-9_-]*(?:=(?:'[^']*'|"[^"]*"|\S*))?)+)`)
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	word     = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_-]*(?:=(?:'[^']*'|"[^"]*"|\S*))?`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
	declared = regexp.MustCompile(`(?m)^func (Test[A-Z]\w+)\(`)
	filePath = regexp.MustCompile(`^(api|assets|bundle|cmd|config|docs|internal|test)/[\w./*-]+$`)
)

// targetsOf checks the commands of make: the targets are in the makefile, and the variables in it or in a program that
// reads them.
func targetsOf(makefile, programs string) check {
	targets := map[string]bool{}
	for _, found := range target.FindAllStringSubmatch(makefile, -1) {
		targets[found[1]] = true
	}
	return func(s snippet) (problems []string) {
		for _, found := range command.FindAllStringSubmatch(s.text, -1) {
			for _, argument := range word.FindAllString(found[1], -1) {
				name, _, isVariable := strings.Cut(argument, "=")
				switch {
				case isVariable && !regexp.MustCompile(`\b`+name+`\b`).MatchString(makefile+programs):
					problems = append(problems, fmt.Sprintf("make has no variable %s", name))
				case !isVariable && name != "TARGET" && !targets[name]:
					problems = append(problems, fmt.Sprintf("make has no target %s", name))
				}
			}
		}
		return problems
	}
}

// TestTargetsOfMakeExist checks each command of make in the docs.
func TestTargetsOfMakeExist(t *testing.T) {
	g := NewWithT(t)
	programs := ""
	for _, dir := range []string{"test/demo", "test/bench", "test/cluster"} {
		files, err := filepath.Glob(filepath.Join(repo, dir, "*.go"))
		g.Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			programs += read(t, strings.TrimPrefix(file, repo+"/"))
		}
	}
	exist := targetsOf(read(t, "Makefile"), programs)
	g.Expect(wrong(skip(pages(t), old), exist)).To(BeEmpty())
	g.Expect(wrong(seeded("`make test unite X9=1 NODES=2`, make nothing\n"+
		"```\ncd x && make dmo TESTFLAGS='-run a b'\n```\n"), exist)).
		To(Equal([]string{"x:1: make has no target unite", "x:1: make has no variable X9", "x:3: make has no target dmo"}))
}

// testsExist checks names of tests; one that a * follows begins the names of several.
func testsExist(names map[string]bool) check {
	return func(s snippet) (problems []string) {
		for _, name := range testName.FindAllString(s.text, -1) {
			if !names[name] {
				problems = append(problems, "no test "+name)
			}
		}
		return problems
	}
}

// TestNamedTestsExist checks each test that the docs name.
func TestNamedTestsExist(t *testing.T) {
	g := NewWithT(t)
	names := map[string]bool{}
	g.Expect(filepath.WalkDir(repo, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != repo:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			names[found[1]] = true
		}
		return err
	})).To(Succeed())
	exist := testsExist(names)
	g.Expect(wrong(skip(pages(t), old), exist)).To(BeEmpty())
	g.Expect(wrong(seeded("`TestNamedTestsExist`, `TestNamedTestsExit`"), exist)).
		To(Equal([]string{"x:1: no test TestNamedTestsExit"}))
}

// examples are paths of files that the docs name and that do not exist.
var examples = map[string]string{
	"assets/fabric-monitor/":                   "the example of development.md",
	"internal/operand/operands/fabricmonitor/": "the example of development.md",
}

// filesExist checks paths of files and folders of the repository.
func filesExist(s snippet) (problems []string) {
	if _, isExample := examples[s.text]; isExample || !filePath.MatchString(s.text) {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(repo, s.text))
	if err != nil || len(found) == 0 {
		return []string{"no file " + s.text}
	}
	return nil
}

// TestNamedFilesExist checks each path in the docs that begins with a folder of the repository.
func TestNamedFilesExist(t *testing.T) {
	g := NewWithT(t)
	g.Expect(wrong(skip(pages(t), old), filesExist)).To(BeEmpty())
	g.Expect(wrong(seeded("`test/docs`, `test/dogs`, `internal/operand/operands/*`, `config/x.yaml`"), filesExist)).
		To(Equal([]string{"x:1: no file test/dogs", "x:1: no file config/x.yaml"}))
}
