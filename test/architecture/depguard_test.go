package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const repo = "../.."

// guarded are the folders all of whose packages need a rule.
var guarded = []string{"api", "assets", "cmd", "config", "internal"}

// rule is one of depguard.
type rule struct {
	Files    []string `json:"files"`
	ListMode string   `json:"list-mode"`
	Allow    []string `json:"allow"`
}

const strict = "strict"

// applies reports whether the rule is about a file, by its path from the root of the repository.
func (r rule) applies(file string) bool {
	included, excluded := false, false
	for _, pattern := range r.Files {
		pattern, negated := strings.CutPrefix(pattern, "!")
		if !matches(pattern, file) {
			continue
		}
		included, excluded = included || !negated, excluded || negated
	}
	return included && !excluded
}

// stale are the allowed imports that none of the files has.
func (r rule) stale(files map[string][]string) []string {
	used := map[string]bool{"$gostd": true}
	for file, imports := range files {
		if !r.applies(file) {
			continue
		}
		for _, allowed := range r.Allow {
			used[allowed] = used[allowed] ||
				slices.ContainsFunc(imports, func(imported string) bool { return covers(allowed, imported) })
		}
	}
	return slices.DeleteFunc(slices.Clone(r.Allow), func(allowed string) bool { return used[allowed] })
}

// covers reports whether an entry of an allow list is about an import. Unlike to depguard, k8s.io/api is not about
// k8s.io/apimachinery.
func covers(allowed, imported string) bool {
	exact, isExact := strings.CutSuffix(allowed, "$")
	return imported == exact || !isExact && strings.HasPrefix(imported, allowed+"/")
}

// matches reports whether a pattern of depguard matches a file.
func matches(pattern, file string) bool {
	switch pattern {
	case "$all":
		return true
	case "$test":
		return strings.HasSuffix(file, "_test.go")
	}
	expression := regexp.QuoteMeta(pattern)
	expression = strings.ReplaceAll(expression, `\*\*`, ".*")
	expression = strings.ReplaceAll(expression, `\*`, "[^/]*")
	return regexp.MustCompile("^" + expression + "$").MatchString("/" + file)
}

// rules are those of .golangci.yml, by name.
func rules(g Gomega) map[string]rule {
	data, err := os.ReadFile(filepath.Join(repo, ".golangci.yml"))
	g.Expect(err).NotTo(HaveOccurred())
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	g.Expect(yaml.Unmarshal(data, &config)).To(Succeed())
	return config.Linters.Settings.Depguard.Rules
}

// sources are the imports of all Go files but tests, by path. Files of every platform count.
func sources(g Gomega) map[string][]string {
	found := map[string][]string{}
	g.Expect(fs.WalkDir(os.DirFS(repo), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != "." &&
			(strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || isModule(file)) {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(file) != ".go" || matches("$test", file) {
			return nil
		}
		found[file], err = importsOf(file)
		return err
	})).To(Succeed())
	return found
}

func importsOf(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repo, file), nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var imports []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		imports = append(imports, imported)
	}
	return imports, nil
}

// isModule reports whether a folder is the root of another module, which has its own rules.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(repo, folder, "go.mod"))
	return err == nil
}

func TestEachPackageHasARuleAboutItsImports(t *testing.T) {
	g := NewWithT(t)
	all := rules(g)
	for _, file := range slices.Sorted(maps.Keys(sources(g))) {
		folder, _, _ := strings.Cut(file, "/")
		if !slices.Contains(guarded, folder) {
			continue
		}
		var names []string
		for name, rule := range all {
			if rule.ListMode == strict && rule.applies(file) {
				names = append(names, name)
			}
		}
		g.Expect(names).To(HaveLen(1), "one strict rule of depguard in .golangci.yml has to be about %s", file)
	}
}

func TestNoRuleAllowsWhatNothingImports(t *testing.T) {
	g := NewWithT(t)
	files := sources(g)
	for name, rule := range rules(g) {
		g.Expect(rule.Files).NotTo(BeEmpty(), "rule %s of .golangci.yml", name)
		if rule.ListMode == strict {
			g.Expect(rule.stale(files)).To(BeEmpty(), "rule %s of .golangci.yml allows what no file of it imports", name)
		}
	}
}

func TestStaleEntriesAreFound(t *testing.T) {
	files := map[string][]string{
		"internal/a/a.go":      {"fmt", "k8s.io/apimachinery/pkg/types", "example.com/module/internal/b"},
		"internal/a/a_test.go": {"k8s.io/api/core/v1"},
		"internal/b/b.go":      {"k8s.io/api/core/v1"},
	}
	about := []string{"**/internal/a/*.go", "!$test"}
	for allowed, stale := range map[string]bool{
		"$gostd": false, "k8s.io/apimachinery": false, "k8s.io/apimachinery/pkg/types$": false,
		"k8s.io/api": true, "k8s.io/apimachinery$": true, "example.com/module/internal": false,
		"example.com/module/internal/b$": false,
	} {
		found := rule{Files: about, Allow: []string{allowed}}.stale(files)
		if isStale := len(found) > 0; isStale != stale {
			t.Errorf("%s is stale: %v, want %v", allowed, isStale, stale)
		}
	}
}

func TestPatterns(t *testing.T) {
	guard := rule{Files: []string{"**/internal/a/*.go", "**/cmd/**/*.go", "!**/cmd/x/*.go", "!$test"}}
	for file, want := range map[string]bool{
		"internal/a/a.go": true, "internal/a/a_test.go": false, "internal/a/b/b.go": false, "internal/b/b.go": false,
		"cmd/y/main.go": true, "cmd/y/app/run.go": true, "cmd/x/main.go": false,
	} {
		if got := guard.applies(file); got != want {
			t.Errorf("the rule applies to %s: %v, want %v", file, got, want)
		}
	}
}
