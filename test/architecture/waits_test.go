package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// shortest is the shortest limit of a wait in a test. What comes on a busy machine comes later, and no test is run
// again; a wait that succeeds takes no longer for a higher limit.
const shortest = 10 * time.Second

// waits are the waits of the tests of one folder.
type waits struct {
	limits  []limit
	without []string
	// constants are the values of the names that the folder defines, the last of a name.
	constants map[string][]ast.Expr
	// hasDefault: the tests set a limit for the waits without one. That of gomega is a second.
	hasDefault bool
}

func newWaits() *waits { return &waits{constants: map[string][]ast.Expr{}} }

// limit is how long something may take that must happen.
type limit struct {
	at   string
	most ast.Expr
}

// TestWaitsAreLong: no wait for something that must happen depends on the speed of the machine.
func TestWaitsAreLong(t *testing.T) {
	g, folders := NewWithT(t), map[string]*waits{}
	g.Expect(filepath.WalkDir(repo, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && path != repo {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		folder := filepath.Dir(path)
		if folders[folder] == nil {
			folders[folder] = newWaits()
		}
		return folders[folder].read(path, nil)
	})).To(Succeed())
	g.Expect(folders).NotTo(BeEmpty())
	for _, found := range folders {
		for _, problem := range found.problems() {
			t.Error(problem)
		}
	}
}

func TestShortWaitsAreFound(t *testing.T) {
	const begin = "package a\n\nfunc f() {\n"
	for body, want := range map[string]int{
		`g.Eventually(f, "1m").Should(x)`:                                 0,
		`g.Eventually(f, patience).Should(x)`:                             0,
		`g.Consistently(f, "50ms").Should(x)`:                             0,
		`Eventually(f).WithTimeout(limit).WithPolling(time.Second).Is(x)`: 0,
		`Eventually(f).Should(x); g.SetDefaultEventuallyTimeout(limit)`:   0,
		`Eventually(f).Should(x); suite.Run(t, "node", prepare)`:          0,
		`g.Eventually(f, "5s").Should(x)`:                                 1,
		`g.Eventually(f, 5*time.Second).Should(x)`:                        1,
		`g.Eventually(f).WithTimeout(time.Second).Should(x)`:              1,
		`g.Eventually(f).Within(time.Second).Should(x)`:                   1,
		`g.Eventually(ctx, f).Within(time.Minute).Should(x)`:              0,
		`g.Eventually(ctx, f).Should(x)`:                                  1,
		`g.Eventually(t.Context(), f, "1s").Should(x)`:                    1,
		`const brief = 2 * time.Second; g.Eventually(f, brief).Should(x)`: 1,
		`const brief, long = time.Second, 9*brief; g.Eventually(f, long)`: 1,
		`run("--timeout=5s")`:                                             1,
		`run("--timeout=100ms")`:                                          0,
		`run("--timeout=5s"); expect("timeout of 5s")`:                    0,
		`g.Expect(time.Since(x)).To(BeNumerically("<", time.Second))`:     1,
		`g.Expect(time.Since(x)).To(BeNumerically(">", time.Second))`:     0,
		`g.Eventually(f).Should(x); g.Eventually(f, time.Second)`:         2,
	} {
		found := newWaits()
		NewWithT(t).Expect(found.read("a_test.go", begin+body+"\n}\n")).To(Succeed())
		NewWithT(t).Expect(found.problems()).To(HaveLen(want), body)
	}
}

// problems are the waits that are too short.
func (w *waits) problems() []string {
	var found []string
	for _, l := range w.limits {
		if of, known := w.durationOf(l.most); known && of < shortest {
			found = append(found, fmt.Sprintf("%sa wait of at most %s: give it %s or more", l.at, of, shortest))
		}
	}
	if w.hasDefault {
		return found
	}
	return append(found, w.without...)
}

// read adds the waits of a file.
func (w *waits) read(path string, text any) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	limited := map[*ast.CallExpr]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				w.constants[n.Names[i].Name] = append(w.constants[n.Names[i].Name], value)
			}
		case *ast.BasicLit:
			w.readFlag(fmt.Sprint(set.Position(n.Pos()), ": "), n.Value, file)
		case *ast.CallExpr:
			w.hasDefault = w.hasDefault || setsDefault(n)
			w.readCall(fmt.Sprint(set.Position(n.Pos()), ": "), n, limited)
		}
		return true
	})
	return nil
}

// setsDefault reports whether a call sets a limit for the waits without one, as package test/suite does.
func setsDefault(call *ast.CallExpr) bool {
	return nameOf(call) == "SetDefaultEventuallyTimeout" || types.ExprString(call.Fun) == "suite.Run"
}

// readFlag adds the limit that a flag gives a program. A limit of a second or less, and one whose message the file
// expects, is for what must not happen.
func (w *waits) readFlag(at, literal string, file *ast.File) {
	text, isFlag := strings.CutPrefix(strings.Trim(literal, `"`), "--timeout=")
	if of, err := time.ParseDuration(text); isFlag && err == nil && of > time.Second && !has(file, "timeout of "+text) {
		w.limits = append(w.limits, limit{at, &ast.BasicLit{Value: strconv.Quote(text)}})
	}
}

// has reports whether a literal of the file contains a text.
func has(file *ast.File, text string) (found bool) {
	ast.Inspect(file, func(node ast.Node) bool {
		literal, is := node.(*ast.BasicLit)
		found = found || is && strings.Contains(literal.Value, text)
		return !found
	})
	return found
}

// readCall adds the limit of a wait, or of the time since a moment. limited are the waits that have one of their own.
func (w *waits) readCall(at string, call *ast.CallExpr, limited map[*ast.CallExpr]bool) {
	switch nameOf(call) {
	case "WithTimeout", "Within":
		if wait := waitOf(call); wait != nil && len(call.Args) == 1 {
			limited[wait] = true
			w.limits = append(w.limits, limit{at, call.Args[0]})
		}
	case "Eventually":
		args := call.Args
		if isContext(args) {
			args = args[1:]
		}
		switch {
		case len(args) > 1:
			w.limits = append(w.limits, limit{at, args[1]})
		case !limited[call] && len(args) > 0:
			w.without = append(w.without, at+"a wait has no limit: set a default of this folder, or one of its own")
		}
	case "To", "Should":
		if most := mostSince(call); most != nil {
			w.limits = append(w.limits, limit{at, most})
		}
	}
}

// isContext reports whether the first argument is a context, by how one is named in this repository.
func isContext(args []ast.Expr) bool {
	if len(args) < 2 {
		return false
	}
	first := types.ExprString(args[0])
	return first == "ctx" || strings.HasSuffix(first, "Context()")
}

// mostSince returns the limit of Expect(time.Since(begin)).To(BeNumerically("<", limit)); nil for other calls.
func mostSince(call *ast.CallExpr) ast.Expr {
	if len(call.Args) == 0 || !strings.Contains(types.ExprString(call.Fun), "Expect(time.Since(") {
		return nil
	}
	matcher, is := call.Args[0].(*ast.CallExpr)
	if is && len(matcher.Args) == 2 && strings.HasPrefix(types.ExprString(matcher), `BeNumerically("<`) {
		return matcher.Args[1]
	}
	return nil
}

// waitOf returns the call of Eventually in a chain of calls; nil if there is none.
func waitOf(call *ast.CallExpr) *ast.CallExpr {
	for call != nil && nameOf(call) != "Eventually" {
		selector, isSelector := call.Fun.(*ast.SelectorExpr)
		if !isSelector {
			return nil
		}
		call, _ = selector.X.(*ast.CallExpr)
	}
	return call
}

// durationOf returns a duration that is constant, such as "5s", time.Second, 5*time.Second or the name of one. If the
// folder gives a name several values, it is the longest.
func (w *waits) durationOf(expression ast.Expr) (d time.Duration, known bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil {
			d, err = time.ParseDuration(text)
			return d, err == nil
		}
		number, err := strconv.Atoi(e.Value)
		return time.Duration(number), err == nil
	case *ast.Ident:
		for _, value := range w.constants[e.Name] {
			if types.ExprString(value) == e.Name {
				return 0, false
			}
			of, isKnown := w.durationOf(value)
			d, known = max(d, of), known || isKnown
		}
		return d, known
	case *ast.SelectorExpr:
		d, known = map[string]time.Duration{
			"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		}[e.Sel.Name]
		return d, known
	case *ast.BinaryExpr:
		left, isKnown := w.durationOf(e.X)
		right, both := w.durationOf(e.Y)
		return left * right, isKnown && both && e.Op == token.MUL
	}
	return 0, false
}
