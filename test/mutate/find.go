package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// find returns the mutations of all files of a package except its tests, in their order. recorders are the methods
// whose calls record an error.
func find(directory string, recorders []string) ([]mutation, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return nil, err
	}
	var found []mutation
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mutations, err := inFile(path, text, recorders)
		if err != nil {
			return nil, err
		}
		found = append(found, mutations...)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("package directory %s has no error that could be dropped", directory)
	}
	for i := range found {
		found[i].number = i + 1
	}
	return found, nil
}

func inFile(path string, text []byte, recorders []string) ([]mutation, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{files: files, pkg: parsed.Name.Name, path: path, text: text, recorders: recorders}
	for _, declaration := range parsed.Decls {
		if function, is := declaration.(*ast.FuncDecl); is && function.Body != nil {
			f.inFunction(function.Type, function.Body)
		}
	}
	// An enclosing one comes before those inside it.
	slices.SortStableFunc(f.found, func(a, b mutation) int { return a.begin - b.begin })
	return f.found, nil
}

// finder collects the mutations of a file.
type finder struct {
	files     *token.FileSet
	pkg, path string
	text      []byte
	recorders []string
	found     []mutation
}

// inFunction searches the statements of one function, and separately each function literal in it.
func (f *finder) inFunction(signature *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			f.inFunction(node.Type, node.Body)
			return false
		case *ast.ReturnStmt:
			f.inReturn(f.results(signature), node)
		case *ast.CallExpr:
			f.inCall(node)
		case *ast.KeyValueExpr:
			if key, is := node.Key.(*ast.Ident); is && key.Name == "Err" {
				f.drop(node.Value)
			}
		case *ast.AssignStmt:
			f.inAssignment(node)
		}
		return true
	})
}

// results returns the result types of a function, as in the source.
func (f *finder) results(signature *ast.FuncType) []string {
	if signature.Results == nil {
		return nil
	}
	var types []string
	for _, field := range signature.Results.List {
		for range max(1, len(field.Names)) {
			types = append(types, string(f.text[f.offset(field.Type.Pos()):f.offset(field.Type.End())]))
		}
	}
	return types
}

// inReturn drops the error that a function returns, if its last result is one.
func (f *finder) inReturn(results []string, statement *ast.ReturnStmt) {
	if len(results) == 0 || len(statement.Results) == 0 || results[len(results)-1] != "error" {
		return
	}
	if len(statement.Results) == len(results) {
		f.drop(statement.Results[len(results)-1])
		return
	}
	// One call gives all results.
	var names []string
	for i := range len(results) - 1 {
		names = append(names, fmt.Sprintf("result%d", i))
	}
	kept := strings.Join(names, ", ")
	f.around(statement.Results[0],
		fmt.Sprintf("func() (%s) { %s, err := ", strings.Join(results, ", "),
			kept), "; return "+kept+", mutationDrop(%d, err) }()")
}

// inCall drops the error that a recorder is called with.
func (f *finder) inCall(call *ast.CallExpr) {
	selector, is := call.Fun.(*ast.SelectorExpr)
	if is && slices.Contains(f.recorders, selector.Sel.Name) && len(call.Args) == 1 {
		f.drop(call.Args[0])
	}
}

// inAssignment drops an error that is assigned to a field Err.
func (f *finder) inAssignment(statement *ast.AssignStmt) {
	if len(statement.Lhs) != len(statement.Rhs) {
		return
	}
	for i, left := range statement.Lhs {
		if selector, is := left.(*ast.SelectorExpr); is && selector.Sel.Name == "Err" {
			f.drop(statement.Rhs[i])
		}
	}
}

// drop replaces an error by nil. The expression is still evaluated, for its side effects.
func (f *finder) drop(expression ast.Expr) {
	if name, is := expression.(*ast.Ident); is && name.Name == "nil" {
		return
	}
	f.around(expression, "mutationDrop(%d, ", ")")
}

func (f *finder) around(expression ast.Expr, prefix, suffix string) {
	f.found = append(f.found, mutation{
		pkg: f.pkg, file: f.path, text: f.text, line: f.files.Position(expression.Pos()).Line,
		begin: f.offset(expression.Pos()), end: f.offset(expression.End()), prefix: prefix, suffix: suffix,
	})
}

func (f *finder) offset(at token.Pos) int { return f.files.Position(at).Offset }
