package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
	short, without []string
	// hasDefault: the tests set a limit for the waits without one. That of gomega is a second.
	hasDefault bool
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
			folders[folder] = &waits{}
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
		`g.Eventually(f, "5s").Should(x)`:                                 1,
		`g.Eventually(f, 5*time.Second).Should(x)`:                        1,
		`g.Eventually(f).WithTimeout(time.Second).Should(x)`:              1,
		`g.Eventually(f).Should(x); g.Eventually(f, time.Second)`:         2,
	} {
		found := &waits{}
		NewWithT(t).Expect(found.read("a_test.go", begin+body+"\n}\n")).To(Succeed())
		NewWithT(t).Expect(found.problems()).To(HaveLen(want), body)
	}
}

// problems are the waits that are too short.
func (w *waits) problems() []string {
	if w.hasDefault {
		return w.short
	}
	return append(w.short, w.without...)
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
		call, isCall := node.(*ast.CallExpr)
		if !isCall {
			return true
		}
		at := fmt.Sprint(set.Position(call.Pos()), ": ")
		switch nameOf(call) {
		case "SetDefaultEventuallyTimeout":
			w.hasDefault = true
		case "WithTimeout":
			if wait := waitOf(call); wait != nil && len(call.Args) == 1 {
				limited[wait] = true
				w.judge(at, call.Args[0])
			}
		case "Eventually":
			if len(call.Args) > 1 {
				w.judge(at, call.Args[1])
			} else if !limited[call] {
				w.without = append(w.without, at+"a wait has no limit: set a default of this folder, or one of its own")
			}
		}
		return true
	})
	return nil
}

// judge adds a wait with this limit if it is short.
func (w *waits) judge(at string, limit ast.Expr) {
	if of, known := durationOf(limit); known && of < shortest {
		w.short = append(w.short, fmt.Sprintf("%sa wait of at most %s: give it %s or more", at, of, shortest))
	}
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

// durationOf returns a duration that is a literal, such as "5s", time.Second or 5*time.Second.
func durationOf(expression ast.Expr) (d time.Duration, known bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if err == nil {
			d, err = time.ParseDuration(text)
			return d, err == nil
		}
		number, err := strconv.Atoi(e.Value)
		return time.Duration(number), err == nil
	case *ast.SelectorExpr:
		d, known = map[string]time.Duration{
			"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		}[e.Sel.Name]
		return d, known
	case *ast.BinaryExpr:
		left, isKnown := durationOf(e.X)
		right, both := durationOf(e.Y)
		return left * right, isKnown && both && e.Op == token.MUL
	}
	return 0, false
}
