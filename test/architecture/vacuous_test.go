package architecture

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// reviewed are the tests whose findings are right as they are, with the reason.
var reviewed = map[string]string{
	"internal/stack/apply/apply_test.go TestDigestDependsOnTheIntentOnly": "two digests of one object must be the same",
	"test/campaign/bugs_test.go catch":                                    "it fails where it does not return",
	"test/node/chain_test.go stages":                                      "it fails where it does not return, too",
	"test/node/programs_test.go logsIfFailed":                             "the test has failed",
}

// TestEveryTestCanFail finds tests that pass whatever happens: those that reach no assertion, that compare a result
// with itself, or that log what they should check.
func TestEveryTestCanFail(t *testing.T) {
	g := NewWithT(t)
	c, err := readCode()
	g.Expect(err).NotTo(HaveOccurred())
	var found []string
	used := map[string]bool{}
	for _, f := range c.vacuous() {
		used[f.key()] = true
		if reviewed[f.key()] == "" {
			found = append(found, f.String())
		}
	}
	g.Expect(found).To(BeEmpty())
	for key := range reviewed {
		g.Expect(used).To(HaveKey(key), "no longer found")
	}
}

// finding is a place in a test that cannot fail.
type finding struct {
	position token.Position
	// test is the name of the function, or the text of the spec.
	test, what string
}

func (f finding) key() string { return f.position.Filename + " " + f.test }

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s %s", f.position.Filename, f.position.Line, f.test, f.what)
}

// vacuous returns the findings in all files of tests.
func (c *code) vacuous() []finding {
	var found []finding
	for _, f := range c.files {
		if !strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, declaration := range f.parsed.Decls {
			if d, is := declaration.(*ast.FuncDecl); is && d.Body != nil {
				found = append(found, c.inFunction(f, d)...)
			}
		}
	}
	return found
}

// inFunction returns the findings in a function of tests, which may be a helper.
func (c *code) inFunction(f *file, d *ast.FuncDecl) []finding {
	var found []finding
	report := func(at ast.Node, test, what string) {
		found = append(found, finding{c.positions.Position(at.Pos()), test, what})
	}
	name := d.Name.Name
	if isTest(d) && !c.reaches(function{d.Body, f}) {
		report(d, name, "reaches no assertion")
	}
	ast.Inspect(d.Body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			if text, body := spec(n); body != nil && !c.reaches(function{body, f}) {
				report(n, text, "reaches no assertion")
			}
			if logsVerdict(n) {
				report(n, name, "logs a truth value instead of a check")
			}
		case *ast.IfStmt:
			if onlyLogs(n) {
				report(n, name, "logs instead of a check")
			}
		case *ast.BlockStmt:
			for _, at := range sameOnBothSides(n) {
				report(at, name, "compares a result with itself")
			}
		}
		return true
	})
	return found
}

// isTest reports whether go test runs the function as a test or fuzz test.
func isTest(d *ast.FuncDecl) bool {
	if d.Recv != nil || d.Type.Params.NumFields() != 1 {
		return false
	}
	switch types.ExprString(d.Type.Params.List[0].Type) {
	case "*testing.T":
		return strings.HasPrefix(d.Name.Name, "Test")
	case "*testing.F":
		return strings.HasPrefix(d.Name.Name, "Fuzz")
	}
	return false
}

// spec returns the text and the body of a spec of ginkgo; nil if it is none.
func spec(call *ast.CallExpr) (string, *ast.BlockStmt) {
	if !slices.Contains([]string{"It", "FIt", "Specify", "DescribeTable"}, nameOf(call)) {
		return "", nil
	}
	for _, argument := range call.Args {
		if literal, is := argument.(*ast.FuncLit); is {
			return types.ExprString(call.Args[0]), literal.Body
		}
	}
	return "", nil
}

// nameOf returns the name of the function or method that is called.
func nameOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// isAssertion reports whether a call may fail the test.
func isAssertion(call *ast.CallExpr) bool {
	switch nameOf(call) {
	case "Expect", "ExpectWithOffset", "Eventually", "EventuallyWithOffset", "Consistently", "RunSpecs", "panic":
		return true
	case "Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow":
		return ofTest(call)
	}
	return false
}

// ofTest reports whether a call is one of a method of *testing.T, by how such a value is named in this repository.
func ofTest(call *ast.CallExpr) bool {
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	x := types.ExprString(selector.X)
	return slices.Contains([]string{"t", "tb", "b", "f", "GinkgoT()"}, x[strings.LastIndex(x, ".")+1:])
}

func isLog(call *ast.CallExpr) bool {
	return slices.Contains([]string{"Log", "Logf"}, nameOf(call)) && ofTest(call)
}

// onlyLogs reports whether a condition does nothing but log, and perhaps end the test. Logs of a failed test are fine.
func onlyLogs(condition *ast.IfStmt) bool {
	if strings.HasSuffix(types.ExprString(condition.Cond), ".Failed()") {
		return false
	}
	logs := false
	for _, statement := range condition.Body.List {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			call, is := s.X.(*ast.CallExpr)
			if !is || !isLog(call) {
				return false
			}
			logs = true
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				return false
			}
		default:
			return false
		}
	}
	return logs && condition.Else == nil
}

var truthValue = regexp.MustCompile(`%t`)

// logsVerdict reports whether a call logs a truth value.
func logsVerdict(call *ast.CallExpr) bool {
	if !isLog(call) || len(call.Args) == 0 {
		return false
	}
	format, is := call.Args[0].(*ast.BasicLit)
	return is && truthValue.MatchString(format.Value)
}

// sameOnBothSides returns the comparisons in statements of a block whose two sides are the same call. A variable that
// the statement before has defined stands for its value.
func sameOnBothSides(block *ast.BlockStmt) []ast.Node {
	var found []ast.Node
	values := map[string]ast.Expr{}
	for _, statement := range block.List {
		ast.Inspect(statement, func(node ast.Node) bool {
			if _, nested := node.(*ast.BlockStmt); nested {
				return false
			}
			if one, other := sides(node); one != nil && sameCall(one, other, values) {
				found = append(found, node)
			}
			return true
		})
		values = defined(statement)
	}
	return found
}

// defined returns the variable that a statement defines, with its value.
func defined(statement ast.Stmt) map[string]ast.Expr {
	assignment, is := statement.(*ast.AssignStmt)
	if !is || assignment.Tok != token.DEFINE || len(assignment.Lhs) != 1 {
		return nil
	}
	return map[string]ast.Expr{types.ExprString(assignment.Lhs[0]): assignment.Rhs[0]}
}

// sides returns the two sides of a comparison that fails the test if they differ; nil if a node is none.
func sides(node ast.Node) (one, other ast.Expr) {
	switch n := node.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.NEQ {
			return n.X, n.Y
		}
	case *ast.CallExpr:
		switch types.ExprString(n.Fun) {
		case "cmp.Diff", "cmp.Equal", "reflect.DeepEqual", "slices.Equal", "maps.Equal":
			return n.Args[0], n.Args[1]
		}
		return expectation(n)
	}
	return nil, nil
}

// expectation returns the sides of Expect(one).To(Equal(other)).
func expectation(call *ast.CallExpr) (one, other ast.Expr) {
	to, is := call.Fun.(*ast.SelectorExpr)
	if !is || to.Sel.Name != "To" && to.Sel.Name != "Should" || len(call.Args) == 0 {
		return nil, nil
	}
	expect, isExpect := to.X.(*ast.CallExpr)
	matcher, isMatcher := call.Args[0].(*ast.CallExpr)
	if !isExpect || !isMatcher || len(expect.Args) == 0 || len(matcher.Args) != 1 {
		return nil, nil
	}
	return expect.Args[0], matcher.Args[0]
}

// sameCall reports whether two expressions are the same, and call a function.
func sameCall(one, other ast.Expr, values map[string]ast.Expr) bool {
	text := func(e ast.Expr) string {
		if value := values[types.ExprString(e)]; value != nil {
			e = value
		}
		return types.ExprString(e)
	}
	return text(one) == text(other) && strings.HasSuffix(text(one), ")")
}

func TestTestsThatCannotFailAreFound(t *testing.T) {
	const nothing, logs = "TestA reaches no assertion", "a logs instead of a check"
	const itself = "a compares a result with itself"
	for name, test := range map[string]struct {
		// code follows the header of a file of tests.
		code string
		want string
	}{
		"an assertion":                  {code: `func TestA(t *testing.T) { g.Expect(f()).To(Equal(1)) }`},
		"an error":                      {code: `func TestA(t *testing.T) { if f() != 1 { t.Error() } }`},
		"no assertion":                  {code: `func TestA(t *testing.T) { f() }`, want: nothing},
		"the text of an error":          {code: `func TestA(t *testing.T) { _ = err.Error() }`, want: nothing},
		"a part":                        {code: `func TestA(t *testing.T) { t.Run("", func(t *testing.T) { t.Fatal() }) }`},
		"a helper":                      {code: `func TestA(t *testing.T) { a(t) }; func a(t *testing.T) { t.Fatal() }`},
		"a method as a value":           {code: `func TestA(t *testing.T) { run(x.a) }; func (x) a() { x.t.Fatal() }`},
		"a helper of another package":   {code: `func TestA(t *testing.T) { helper.Check(t) }`},
		"a method of another package":   {code: `func TestA(t *testing.T) { value.Check(t) }`},
		"a helper that asserts nothing": {code: `func TestA(t *testing.T) { helper.Nothing(t) }`, want: nothing},
		"a recursion": {
			code: `func TestA(t *testing.T) { a() }; func a() { b() }; func b() { a() }`, want: nothing,
		},
		"a spec": {code: `func specs() { It("works", func() { f() }) }`, want: `"works" reaches no assertion`},
		"a fuzz test": {
			code: `func FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T) { g() }) }`, want: "FuzzA reaches no assertion",
		},
		"no test":      {code: `func TestMain(m *testing.M) { m.Run() }; func BenchmarkA(b *testing.B) { f() }`},
		"itself":       {code: `func a() { g.Expect(f(1)).To(Equal(f(1))) }`, want: itself},
		"another":      {code: `func a() { g.Expect(f(1)).To(Equal(f(2))) }`},
		"a value":      {code: `func a() { want := f(1); g.Expect(f(1)).To(Equal(want)) }`, want: itself},
		"an old value": {code: `func a() { before := f(1); change(); g.Expect(f(1)).To(Equal(before)) }`},
		"itself, in a condition": {
			code: `func a() { if got := f(1); got != 1 || f(2) != f(2) { } }`, want: itself,
		},
		"itself, in a difference": {code: `func a() { _ = cmp.Diff(f(1), f(1)) }`, want: itself},
		"a constant":              {code: `func a() { g.Expect(x).To(Equal(x)) }`},
		"a log instead of a check": {
			code: `func a() { if !struck() { t.Logf("no") } }`, want: logs,
		},
		"a log that ends the test": {code: `func a() { if x { t.Log(); return } }`, want: logs},
		"a log of a failed test":   {code: `func a() { if x.t.Failed() { t.Log() } }`},
		"a log and a check":        {code: `func a() { if x { t.Log(); t.Fail() } }`},
		"a log of a verdict": {
			code: `func a() { t.Logf("refused: %t", x) }`, want: "a logs a truth value instead of a check",
		},
		"a log of a number": {code: `func a() { t.Logf("took %d", x) }`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCode()
			g.Expect(c.add("helper/helper.go", []byte(`package helper
				func Check(t testing.TB) { t.Fatal() }
				func Nothing(t testing.TB) { t.Log() }`))).To(Succeed())
			g.Expect(c.add("a/a_test.go", []byte("package a; import "+strconv.Quote(ownModule+"helper")+"\n"+test.code))).
				To(Succeed())
			var found []string
			for _, f := range c.vacuous() {
				found = append(found, f.test+" "+f.what)
			}
			g.Expect(strings.Join(found, ", ")).To(Equal(test.want))
		})
	}
}
