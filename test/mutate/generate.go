package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// generate returns the mutants of a package that compile, in the order of its files.
func generate(p *loaded, imports types.Importer) ([]*mutant, error) {
	var all []*mutant
	for i, file := range p.syntax {
		if ast.IsGenerated(file) {
			continue
		}
		f := &finder{loaded: p, source: p.sources[i], file: file}
		f.inFile()
		slices.SortStableFunc(f.found, func(a, b *mutant) int { return a.begin - b.begin })
		all = append(all, f.found...)
	}
	for i, m := range all {
		m.number = i + 1
	}
	return compiling(p, all, imports)
}

// compiling leaves out the mutants that do not compile: each error is in the text of one of them, or is due to one of
// those in the same function.
func compiling(p *loaded, mutants []*mutant, imports types.Importer) ([]*mutant, error) {
	const rounds = 20
	for range rounds {
		sources, spans := mutated(p, mutants)
		c, err := check(p.ImportPath, sources, imports)
		if err != nil {
			return nil, err
		}
		if len(c.errors) == 0 {
			return mutants, nil
		}
		wrong := map[*mutant]bool{}
		for _, e := range c.errors {
			at := c.files.Position(e.Pos)
			if found := culprits(spans[at.Filename], at.Offset, c); len(found) > 0 {
				for _, m := range found {
					wrong[m] = true
				}
				continue
			}
			return nil, fmt.Errorf("a mutant of %s does not compile, and it is not clear which: %w", p.name(), e)
		}
		mutants = slices.DeleteFunc(mutants, func(m *mutant) bool { return wrong[m] })
	}
	return nil, fmt.Errorf("mutants of %s do not compile after %d rounds", p.name(), rounds)
}

// mutated returns the files of a package with its switched mutants and the switch.
func mutated(p *loaded, mutants []*mutant) ([]source, map[string][]span) {
	of := map[string][]*mutant{}
	for _, m := range mutants {
		of[m.source.path] = append(of[m.source.path], m)
	}
	sources := []source{{p.Dir + "/mutant_switch.go", fmt.Appendf(nil, switchSource, p.types.Name())}}
	spans := map[string][]span{}
	for _, s := range p.sources {
		text, found := apply(s.text, of[s.path])
		sources, spans[s.path] = append(sources, source{s.path, text}), found
	}
	return sources, spans
}

// culprits returns the mutant in whose text an error is, or else all of the function that the error is in.
func culprits(spans []span, offset int, c checked) []*mutant {
	// An inner one closes before those around it.
	for _, s := range spans {
		if s.begin <= offset && offset < s.end {
			return []*mutant{s.mutant}
		}
	}
	var found []*mutant
	for _, file := range c.syntax {
		for _, declaration := range file.Decls {
			begin, end := c.files.Position(declaration.Pos()), c.files.Position(declaration.End())
			if begin.Offset > offset || offset >= end.Offset {
				continue
			}
			for _, s := range spans {
				if begin.Offset <= s.begin && s.end <= end.Offset {
					found = append(found, s.mutant)
				}
			}
		}
	}
	return found
}

// finder collects the mutants of a file.
type finder struct {
	*loaded
	source   source
	file     *ast.File
	function string
	found    []*mutant
}

func (f *finder) inFile() {
	for _, declaration := range f.file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			if declaration.Body != nil {
				f.function = functionName(declaration)
				f.inNode(declaration.Body, f.results(declaration.Type))
			}
		case *ast.GenDecl:
			if declaration.Tok != token.VAR {
				continue
			}
			for _, specification := range declaration.Specs {
				if value, is := specification.(*ast.ValueSpec); is {
					f.function = value.Names[0].Name
					f.inNode(value, nil)
				}
			}
		}
	}
}

// functionName returns the name of a function, or TYPE.METHOD.
func functionName(declaration *ast.FuncDecl) string {
	if declaration.Recv == nil || len(declaration.Recv.List) == 0 {
		return declaration.Name.Name
	}
	receiver := declaration.Recv.List[0].Type
	for {
		switch of := receiver.(type) {
		case *ast.StarExpr:
			receiver = of.X
		case *ast.IndexExpr:
			receiver = of.X
		case *ast.IndexListExpr:
			receiver = of.X
		case *ast.Ident:
			return of.Name + "." + declaration.Name.Name
		default:
			return declaration.Name.Name
		}
	}
}

// inNode searches a function or variable, and separately each function literal in it. results are the types of the
// function's results.
func (f *finder) inNode(root ast.Node, results []string) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			f.inNode(node.Body, f.results(node.Type))
			return false
		case *ast.BlockStmt:
			f.inStatements(node.List)
		case *ast.CaseClause:
			for _, expression := range node.List {
				f.condition(expression)
			}
			f.inStatements(node.Body)
		case *ast.CommClause:
			f.inStatements(node.Body)
		case *ast.IfStmt:
			f.condition(node.Cond)
			f.earlyExit(node)
		case *ast.ForStmt:
			f.condition(node.Cond)
		case *ast.BinaryExpr:
			f.inBinary(node)
		case *ast.ReturnStmt:
			f.inReturn(results, node)
		case *ast.CompositeLit:
			f.inComposite(node)
		case *ast.CallExpr:
			f.inCall(node)
		}
		return true
	})
}

// results returns the types of a function's results, as in the source.
func (f *finder) results(signature *ast.FuncType) []string {
	if signature.Results == nil {
		return nil
	}
	var all []string
	for _, field := range signature.Results.List {
		for range max(1, len(field.Names)) {
			all = append(all, f.textOf(field.Type))
		}
	}
	return all
}

// add adds a mutant that changes the text from begin to end.
func (f *finder) add(operator string, begin, end token.Pos, changed string, edits ...edit) {
	f.found = append(f.found, &mutant{
		pkg: f.name(), function: f.function, operator: operator, source: f.source,
		line: f.files.Position(begin).Line, begin: f.offset(begin), end: f.offset(end), changed: changed, edits: edits,
	})
}

// replace adds a mutant of a whole node, which prefix and suffix enclose.
func (f *finder) replace(operator string, node ast.Node, changed, prefix, suffix string) {
	f.add(operator, node.Pos(), node.End(), changed, f.around(node, prefix, suffix))
}

func (f *finder) around(node ast.Node, prefix, suffix string) edit {
	return edit{f.offset(node.Pos()), f.offset(node.End()), prefix, suffix}
}

func (f *finder) offset(at token.Pos) int { return f.files.Position(at).Offset }

func (f *finder) textOf(node ast.Node) string {
	return string(f.source.text[f.offset(node.Pos()):f.offset(node.End())])
}

// typeText returns a type as this file can write it; it may not compile, where the file does not import its package.
func (f *finder) typeText(t types.Type) string {
	return types.TypeString(t, func(of *types.Package) string {
		if of == f.types {
			return ""
		}
		for _, imported := range f.file.Imports {
			if strings.Trim(imported.Path.Value, `"`) == of.Path() && imported.Name != nil {
				return imported.Name.Name
			}
		}
		return of.Name()
	})
}
