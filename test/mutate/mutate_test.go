package main

import (
	"go/importer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const sample = `package sample

import "errors"

type T struct {
	Name string
	Err  error
}

func less(a, b int) bool { return a < b }

func both(a, b bool) error {
	if !a && b {
		return errors.New("both")
	}
	for _, x := range []int{1, 2} {
		if a {
			continue
		}
		println(less(x, 3), T{Name: "x"}.Name)
	}
	return nil
}

func (t *T) set(names ...T) (int, error) {
	t.Err = both(true, false)
	t.set(names[0], T{})
	return t.set(names...)
}
`

// loadSample returns the package of the test's source.
func loadSample(t *testing.T) (*loaded, []*mutant) {
	t.Helper()
	g := NewWithT(t)
	p := &loaded{listed: &listed{ImportPath: "sample", Dir: "/sample"}, sources: []source{
		{"/sample/sample.go", []byte(sample)},
	}}
	imports := importer.ForCompiler(token.NewFileSet(), "source", nil)
	var err error
	p.checked, err = check("sample", p.sources, imports)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.errors).To(BeEmpty())
	mutants, err := generate(p, imports)
	g.Expect(err).NotTo(HaveOccurred())
	return p, mutants
}

// Each operator changes its places; all changes compile in one package.
func TestMutants(t *testing.T) {
	g := NewWithT(t)
	_, mutants := loadSample(t)
	var all []string
	for _, m := range mutants {
		all = append(all, strings.TrimPrefix(m.String(), "sample/"))
	}
	g.Expect(all).To(ConsistOf(
		"sample.go:10 less, result: a < b => true", "sample.go:10 less, result: a < b => false",
		"sample.go:10 less, compare: a < b => a <= b",
		"sample.go:13 both, logic: !a && b => !a || b", "sample.go:13 both, negate: !a => !(!a)",
		"sample.go:13 both, negate: b => !(b)",
		`sample.go:14 both, error: errors.New("both") => nil`,
		"sample.go:17 both, negate: a => !(a)", "sample.go:18 both, statement: continue => ",
		`sample.go:20 both, statement: println(less(x, 3), T{Name: "x"}.Name) => `,
		"sample.go:20 both, swap: x, 3 => 3, x", `sample.go:20 both, field: Name: "x" => `,
		"sample.go:26 T.set, statement: t.Err = both(true, false) => ",
		"sample.go:26 T.set, swap: true, false => false, true",
		"sample.go:27 T.set, statement: t.set(names[0], T{}) => ",
		"sample.go:27 T.set, option: names[0] => ", "sample.go:27 T.set, option: T{} => ",
		"sample.go:28 T.set, result: t.set(names...) => t.set(names...), result 0: zero",
		"sample.go:28 T.set, error: t.set(names...) => t.set(names...), result 1: nil",
	))
	g.Expect(mutants[1].diff()).To(Equal(
		"    - func less(a, b int) bool { return a < b }\n    + func less(a, b int) bool { return false }\n"))
}

// A mutant that does not compile is left out, and no other.
func TestMutantsThatDoNotCompile(t *testing.T) {
	g := NewWithT(t)
	p, mutants := loadSample(t)
	wrong := *mutants[0]
	wrong.edits = []edit{{wrong.begin, wrong.end, "(", " + nothing)"}}
	left, err := compiling(p, append(mutants, &wrong), importer.ForCompiler(token.NewFileSet(), "source", nil))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(Equal(mutants))
}

// The seed repeats a choice, and a choice keeps the order of the code.
func TestChoice(t *testing.T) {
	g := NewWithT(t)
	_, mutants := loadSample(t)
	choose := func(arguments ...string) []*mutant {
		c, err := parse(append(arguments, "."))
		g.Expect(err).NotTo(HaveOccurred())
		return c.chooseMutants("sample", mutants)
	}
	g.Expect(choose("-seed=7", "-mutants=5")).To(And(HaveLen(5), Equal(choose("-seed=7", "-mutants=5")),
		Not(Equal(choose("-seed=8", "-mutants=5")))))
	g.Expect(choose("-operators=swap")).To(HaveLen(2))
	g.Expect(choose("-only=T.set, error")).To(HaveLen(1))
	_, err := parse([]string{"-operators=other", "."})
	g.Expect(err).To(MatchError(ContainSubstring("no operator other")))
	for _, part := range []string{"-operators=swap", "-only=set"} {
		_, err = parse([]string{part, "-report=a.md", "."})
		g.Expect(err).To(MatchError(ContainSubstring("-report excludes")), part)
	}
}

// A run that has tried nothing fails, as does one package with too many live mutants among others.
func TestVerdict(t *testing.T) {
	g := NewWithT(t)
	rows := []*row{{Package: "a", Killed: 98}, {Package: "b", Killed: 1, Live: 1}}
	for _, test := range []struct {
		most, mostOfOne float64
		rows            []*row
		want            OmegaMatcher
	}{
		{2, 50, rows, Succeed()},
		{2, 0, rows, Succeed()},
		{2, 49, rows, MatchError("more than 49.0 % of the mutants are live of b (50.0 %)")},
		{0, 0, rows, MatchError("1.0 % of the mutants are live, and at most 0.0 % may be")},
		{100, 0, []*row{{Package: "a", Untried: 3}}, MatchError("no mutant was tried")},
		{100, 0, nil, MatchError("no mutant was tried")},
	} {
		g.Expect((&choice{most: test.most, mostOfOne: test.mostOfOne}).verdict(test.rows)).To(test.want)
	}
}

// A reviewed mutant is left out, wherever its line is; an entry that matches none is an error.
func TestEquivalents(t *testing.T) {
	g := NewWithT(t)
	_, mutants := loadSample(t)
	entry := "- {package: sample, function: less, operator: compare, change: a < b => a <= b, reason: "
	read, err := readEquivalents([]byte(entry + "numbers are never equal}"))
	g.Expect(err).NotTo(HaveOccurred())
	left, err := withoutEquivalents("sample", mutants, read)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(len(mutants) - 1))
	read[0].Function = "more"
	_, err = withoutEquivalents("sample", mutants, read)
	g.Expect(err).To(MatchError(ContainSubstring("has no mutant more")))
	_, err = readEquivalents([]byte(entry + "}"))
	g.Expect(err).To(MatchError(ContainSubstring("no reason")))
}

// module is a package whose tests notice the faults of two functions, of which one is a condition that go vet suspects,
// run another function without a check, and do not reach two; the tests of a second package notice the last. The tests
// of a third are left out with -short, and those of a fourth build and run its program.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"m/m.go": `package m

func Kill() int { return 1 }

func Live() int { return 2 }

func Unrun() int { return 3 }

func Outside() int { return 4 }

func Neither(kind string) bool { return kind != "a" && kind != "b" }
`,
	"m/m_test.go": `package m

import "testing"

func TestKill(t *testing.T) {
	Live()
	if Kill() != 1 || Neither("a") || Neither("b") || !Neither("c") {
		t.Fatal()
	}
}
`,
	"suite/suite.go": "package suite\n\nfunc One() int { return 1 }\n",
	"suite/suite_test.go": `package suite

import "testing"

func TestOne(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	if One() != 1 {
		t.Fatal()
	}
}
`,
	"program/main.go": `package main

import "os"

func main() { os.Exit(code()) }

func code() int { return 3 }
`,
	"program/main_test.go": `package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func TestProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := exec.Command("go", "build", "-o", path, ".").Run(); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); err == nil || err.Error() != "exit status 3" {
		t.Fatal()
	}
}
`,
	"via/via.go": "package via\n\nimport \"example.com/m/m\"\n\nvar Outside = m.Outside\n",
	"user/user_test.go": `package user

import (
	"testing"

	"example.com/m/via"
)

func TestOutside(t *testing.T) {
	if via.Outside() != 4 {
		t.Fatal()
	}
}
`,
}

// Tests judge each mutant, first those of its package, then those of a package that imports it through another one,
// which need not be given.
func TestJudge(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	t.Chdir(dir)
	const report = "report.md"
	g.Expect(os.WriteFile(report, []byte("# Report\n"), 0o600)).To(Succeed())
	var out strings.Builder
	arguments := []string{
		"-seed=1", "-importers=2", "-lanes=2", "-most=15", "-report=" + report, "./m", "./program", "./suite", "./user",
	}
	g.Expect(run(t.Context(), arguments, &out)).To(
		MatchError("18.2 % of the mutants are live, and at most 15.0 % may be"))
	g.Expect(out.String()).To(And(
		ContainSubstring("live: m/m.go:5 Live, result\n    - func Live() int { return 2 }\n"+
			"    + func Live() int { return zero }\n"),
		ContainSubstring("not reached: m/m.go:7 Unrun, result\n"),
		ContainSubstring("| m | 9 | 7 | 0 | 2 | 1 | 22 |\n"),
		ContainSubstring("suite: not judged"), Not(ContainSubstring("| suite |")),
		ContainSubstring("| program | 2 | 2 | 0 | 0 | 0 | 0 |\n"), ContainSubstring("SEED=1 repeats this choice."),
	))
	written, err := os.ReadFile(report)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(And(HavePrefix("# Report\n"), ContainSubstring("seed 1"),
		ContainSubstring("| all | 11 | 9 | 0 | 2 | 1 | 18 |\n")))

	// Another run only judges what is left. The document has both results, and both are the verdict.
	out.Reset()
	g.Expect(run(t.Context(), append([]string{"-suites"}, arguments...), &out)).To(
		MatchError("16.7 % of the mutants are live, and at most 15.0 % may be"))
	g.Expect(out.String()).To(And(ContainSubstring("suite: 1 of 1 killed"), Not(ContainSubstring("program:"))))
	written, err = os.ReadFile(report)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(written)).To(And(ContainSubstring("| all | 12 | 10 | 0 | 2 | 1 | 17 |\n"),
		ContainSubstring("judged suite, too."), Not(ContainSubstring("| all | 11 |"))))
}

// As many importers as asked for judge, the nearest and then the smallest first; those without tests cannot.
func TestTheNearestImportersJudge(t *testing.T) {
	g := NewWithT(t)
	const tests = "a_test.go"
	far := &listed{ImportPath: "a/far", TestGoFiles: []string{tests}, Imports: []string{"b/near"}}
	near := &listed{ImportPath: "b/near", TestGoFiles: []string{tests}, Imports: []string{"m", "fmt"}}
	byTest := &listed{ImportPath: "c/by-test", XTestGoFiles: []string{tests}, XTestImports: []string{"m", "fmt", "io"}}
	untested := &listed{ImportPath: "d/untested", Imports: []string{"m"}}
	stranger := &listed{ImportPath: "e/stranger", TestGoFiles: []string{tests}, Imports: []string{"fmt"}}
	m := &listed{ImportPath: "m", TestGoFiles: []string{tests}}
	r := &runner{choice: &choice{importers: 9}, world: &world{
		packages: []*listed{far, near, byTest, untested, stranger, m},
		imported: map[string][]string{"b/near": near.Imports},
	}}
	g.Expect(r.importersOf(&loaded{listed: m})).To(Equal([]*listed{near, byTest, far}))
	r.importers = 2
	g.Expect(r.importersOf(&loaded{listed: m})).To(Equal([]*listed{near, byTest}))
	r.importers = 0
	g.Expect(r.importersOf(&loaded{listed: m})).To(BeEmpty())
}

func TestTable(t *testing.T) {
	g := NewWithT(t)
	r := &row{Package: "a", Untried: 2}
	for _, v := range []verdict{killed, killed, stopped, live, unrun} {
		r.count(v)
	}
	var out strings.Builder
	writeTable(&out, []*row{r})
	g.Expect(out.String()).To(And(ContainSubstring("| a | 5 | 3 | 1 | 2 | 1 | 40 |\n| all | 5 | 3 | 1 | 2 | 1 | 40 |"),
		ContainSubstring("before 2 more were tried")))
}
