package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// Operators, as they are chosen and shown.
const (
	negate    = "negate"    // a condition holds where it does not
	compare   = "compare"   // another comparison: <= for <, != for ==
	logic     = "logic"     // || for &&, and the reverse
	statement = "statement" // a call, an assignment or an early exit is left out
	lostError = "error"     // nil is returned for an error
	result    = "result"    // another constant is returned
	swap      = "swap"      // two arguments of the same type change places
	field     = "field"     // a field or entry of a literal is left out
	option    = "option"    // an option of a call is left out
)

var operators = []string{negate, compare, logic, statement, lostError, result, swap, field, option}

// condition negates a condition, unless inBinary does.
func (f *finder) condition(expression ast.Expr) {
	if expression == nil || !f.isBool(expression) || f.info.Types[expression].Value != nil {
		return
	}
	if binary, is := ast.Unparen(expression).(*ast.BinaryExpr); is {
		switch binary.Op {
		case token.EQL, token.NEQ, token.LAND, token.LOR:
			return
		}
	}
	f.replace(negate, expression, "!("+f.textOf(expression)+")", "(mutantOn("+numberHere+") != (", "))")
}

func (f *finder) isBool(expression ast.Expr) bool {
	t := f.info.TypeOf(expression)
	if t == nil {
		return false
	}
	basic, is := t.Underlying().(*types.Basic)
	return is && basic.Info()&types.IsBoolean != 0
}

// others are the operators that replace one.
var others = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR, token.LAND: token.LOR, token.LOR: token.LAND,
}

func (f *finder) inBinary(binary *ast.BinaryExpr) {
	other, is := others[binary.Op]
	if !is || f.info.Types[binary].Value != nil {
		return
	}
	operator := compare
	if binary.Op == token.LAND || binary.Op == token.LOR {
		operator = logic
		f.condition(binary.X)
		f.condition(binary.Y)
	}
	begin := f.offset(binary.Pos())
	at := f.offset(binary.OpPos) - begin
	text := f.textOf(binary)
	changed := text[:at] + other.String() + text[at+len(binary.Op.String()):]
	on := "mutantOn(" + numberHere + ")"
	f.replace(operator, binary, changed, "("+on+" && ("+changed+") || !"+on+" && (", "))")
}

// logs matches calls that only log.
var logs = regexp.MustCompile(`^(\w+\.)*(log|Log|logger|slog|klog)(\.V\(\d\)|\.FromContext\(\w+\))*\.\w+\(`)

// inStatements leaves out calls and assignments.
func (f *finder) inStatements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			call, is := s.X.(*ast.CallExpr)
			if !is || logs.MatchString(f.textOf(call)) {
				continue
			}
			if name, is := call.Fun.(*ast.Ident); is && name.Name == "panic" {
				continue
			}
			f.leaveOut(s)
		case *ast.AssignStmt:
			if name, is := s.Lhs[0].(*ast.Ident); s.Tok == token.DEFINE || is && name.Name == "_" {
				continue
			}
			f.leaveOut(s)
		case *ast.IncDecStmt:
			f.leaveOut(s)
		}
	}
}

func (f *finder) leaveOut(s ast.Stmt) {
	f.replace(statement, s, "", "if !mutantOn("+numberHere+") { ", " }")
}

// earlyExit leaves out the end of a branch that ends the function, or the pass of a loop, unless it returns an error,
// which inReturn drops.
func (f *finder) earlyExit(branch *ast.IfStmt) {
	if branch.Else != nil || len(branch.Body.List) == 0 {
		return
	}
	switch last := branch.Body.List[len(branch.Body.List)-1].(type) {
	case *ast.BranchStmt:
		f.leaveOut(last)
	case *ast.ReturnStmt:
		if n := len(last.Results); n == 0 || !f.isError(last.Results[n-1]) {
			f.leaveOut(last)
		}
	}
}

func (f *finder) isError(expression ast.Expr) bool {
	t := f.info.TypeOf(expression)
	return t != nil && types.AssignableTo(t, types.Universe.Lookup("error").Type()) && !f.isZero(expression)
}

// inReturn returns other constants: no error, false, true or the zero value. The expression is still evaluated.
func (f *finder) inReturn(results []string, s *ast.ReturnStmt) {
	if len(s.Results) == len(results) {
		for i, expression := range s.Results {
			f.otherResult(results[i], expression)
		}
		return
	}
	if len(s.Results) != 1 {
		return
	}
	// One call gives all results.
	var names []string
	for i := range results {
		names = append(names, fmt.Sprintf("result%d", i))
	}
	all := strings.Join(names, ", ")
	prefix := "func() (" + strings.Join(results, ", ") + ") { " + all + " := "
	for i := range results {
		operator, changed := result, "zero"
		if results[i] == "error" {
			operator, changed = lostError, "nil"
		}
		with := strings.Replace(all, names[i], "mutantZero["+results[i]+"]("+numberHere+", "+names[i]+")", 1)
		f.replace(operator, s.Results[0], fmt.Sprintf("%s, result %d: %s", f.textOf(s.Results[0]), i, changed),
			prefix, "; return "+with+" }()")
	}
}

func (f *finder) otherResult(of string, expression ast.Expr) {
	value := f.info.Types[expression].Value
	if f.isBool(expression) {
		if value == nil || value.Kind() == constant.Bool && !constant.BoolVal(value) {
			f.replace(result, expression, "true", "(mutantOn("+numberHere+") || (", "))")
		}
		if value == nil || value.Kind() == constant.Bool && constant.BoolVal(value) {
			f.replace(result, expression, "false", "(!mutantOn("+numberHere+") && (", "))")
		}
		return
	}
	if f.isZero(expression) {
		return
	}
	operator, changed := result, "zero"
	if of == "error" {
		operator, changed = lostError, "nil"
	}
	f.replace(operator, expression, changed, "mutantZero["+of+"]("+numberHere+", ", ")")
}

// isZero reports whether an expression is a constant zero, nil or an empty literal.
func (f *finder) isZero(expression ast.Expr) bool {
	if literal, is := expression.(*ast.CompositeLit); is {
		return len(literal.Elts) == 0
	}
	t := f.info.Types[expression]
	if t.IsNil() {
		return true
	}
	if t.Value == nil {
		return false
	}
	switch t.Value.Kind() {
	case constant.String:
		return constant.StringVal(t.Value) == ""
	case constant.Bool:
		return !constant.BoolVal(t.Value)
	case constant.Int, constant.Float:
		return constant.Sign(t.Value) == 0
	}
	return false
}

// inComposite leaves out the fields of structs, and the values of maps.
func (f *finder) inComposite(literal *ast.CompositeLit) {
	of := f.info.TypeOf(literal)
	if of == nil {
		return
	}
	of = of.Underlying()
	if pointer, is := of.(*types.Pointer); is {
		of = pointer.Elem().Underlying()
	}
	for _, element := range literal.Elts {
		pair, is := element.(*ast.KeyValueExpr)
		if !is || f.isZero(pair.Value) {
			continue
		}
		if inner, is := pair.Value.(*ast.CompositeLit); is && inner.Type == nil {
			continue
		}
		t := elementType(of, pair.Key)
		if t == nil {
			continue
		}
		prefix := "mutantZero" + f.typeArgument(t, pair.Value) + "(" + numberHere + ", "
		f.add(field, pair.Pos(), pair.End(), "", f.around(pair.Value, prefix, ")"))
	}
}

// typeArgument returns the type argument of a switch, nothing if the compiler infers it: the file may not import the
// package of the type.
func (f *finder) typeArgument(of types.Type, values ...ast.Expr) string {
	for _, value := range values {
		if t := f.info.Types[value]; t.Value != nil || t.Type == nil || !types.Identical(t.Type, of) {
			return "[" + f.typeText(of) + "]"
		}
	}
	return ""
}

// elementType returns the type of the field or of the values, nil if it has neither.
func elementType(of types.Type, key ast.Expr) types.Type {
	switch of := of.(type) {
	case *types.Map:
		return of.Elem()
	case *types.Struct:
		name, is := key.(*ast.Ident)
		for i := range of.NumFields() {
			if is && of.Field(i).Name() == name.Name {
				return of.Field(i).Type()
			}
		}
	}
	return nil
}

// inCall swaps arguments, and leaves out options, such as the preconditions of a write.
func (f *finder) inCall(call *ast.CallExpr) {
	called := f.info.Types[call.Fun]
	signature, is := called.Type.(*types.Signature)
	if !is || called.IsBuiltin() || called.IsType() || logs.MatchString(f.textOf(call)) {
		return
	}
	fixed := signature.Params().Len()
	if signature.Variadic() {
		fixed--
		f.options(call, fixed, signature.Params().At(fixed).Type())
	}
	// One call may give all arguments.
	if !symmetric.MatchString(f.textOf(call.Fun)) && len(call.Args) >= fixed {
		f.swaps(call, signature, fixed)
	}
}

// symmetric matches functions whose result is the same with their arguments in another order.
var symmetric = regexp.MustCompile(`Equal|^times\.(Earlier|Later)$`)

func (f *finder) swaps(call *ast.CallExpr, signature *types.Signature, fixed int) {
	for i := 1; i < fixed; i++ {
		t := signature.Params().At(i).Type()
		a, b := call.Args[i-1], call.Args[i]
		if !types.Identical(signature.Params().At(i-1).Type(), t) || !pure(a) || !pure(b) || f.textOf(a) == f.textOf(b) {
			continue
		}
		pick := "mutantPick" + f.typeArgument(t, a, b) + "(" + numberHere + ", "
		between := string(f.source.text[f.offset(a.End()):f.offset(b.Pos())])
		f.add(swap, a.Pos(), b.End(), f.textOf(b)+between+f.textOf(a),
			f.around(a, pick+f.textOf(b)+", ", ")"), f.around(b, pick+f.textOf(a)+", ", ")"))
	}
}

// pure reports whether an expression may be evaluated twice.
func pure(expression ast.Expr) bool {
	switch expression := expression.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return pure(expression.X)
	case *ast.StarExpr:
		return pure(expression.X)
	case *ast.IndexExpr:
		return pure(expression.X) && pure(expression.Index)
	}
	return false
}

// options leaves out each argument from the first on, if they are of a type that has a name, and so are no operands of
// a format or a log.
func (f *finder) options(call *ast.CallExpr, first int, of types.Type) {
	slice, is := of.(*types.Slice)
	if !is || call.Ellipsis.IsValid() || len(call.Args) <= first {
		return
	}
	if _, is := types.Unalias(slice.Elem()).(*types.Named); !is {
		return
	}
	last := call.Args[len(call.Args)-1]
	for i, argument := range call.Args[first:] {
		f.add(option, argument.Pos(), argument.End(), "", edit{
			f.offset(call.Args[first].Pos()), f.offset(last.End()),
			fmt.Sprintf("mutantWithout[%s](%s, %d, ", f.typeText(slice.Elem()), numberHere, i), ")...",
		})
	}
}
