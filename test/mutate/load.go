package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir, Export            string
	DepOnly                            bool
	GoFiles, CgoFiles                  []string
	TestGoFiles, XTestGoFiles          []string
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Path string }
}

// name returns the folder of the package in its module.
func (l *listed) name() string {
	if l.Module == nil {
		return l.ImportPath
	}
	return strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, l.Module.Path), "/")
}

func (l *listed) hasTests() bool { return len(l.TestGoFiles)+len(l.XTestGoFiles) > 0 }

// imports reports whether the package or its tests import a package.
func (l *listed) imports(path string) bool {
	return slices.Contains(l.Imports, path) || slices.Contains(l.TestImports, path) ||
		slices.Contains(l.XTestImports, path)
}

// world is what go list found: the packages of the patterns, what each package imports, and the export data of all.
type world struct {
	packages []*listed
	imported map[string][]string
	exports  map[string]string
	importer types.Importer
}

// list asks go list for the packages that match patterns, and for what their tests import.
func list(ctx context.Context, patterns []string) (*world, error) {
	w := &world{imported: map[string][]string{}, exports: map[string]string{}}
	found, err := goList(ctx, slices.Concat([]string{"-export", "--"}, patterns, switchImports))
	if err != nil {
		return nil, err
	}
	var ofTests []string
	for _, l := range found {
		w.exports[l.ImportPath], w.imported[l.ImportPath] = l.Export, l.Imports
		// What cgo writes cannot be checked here; the standard library is what the switch imports.
		if !l.DepOnly && len(l.CgoFiles) == 0 && l.Module != nil {
			w.packages = append(w.packages, l)
			ofTests = slices.Concat(ofTests, l.TestImports, l.XTestImports)
		}
	}
	ofTests = slices.DeleteFunc(ofTests, func(path string) bool { return path == "C" })
	if found, err = goList(ctx, append([]string{"--"}, ofTests...)); err != nil {
		return nil, err
	}
	for _, l := range found {
		w.imported[l.ImportPath] = l.Imports
	}
	w.importer = importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(w.exports[path])
	})
	return w, nil
}

// goList returns the packages that the arguments name, and those that they import.
func goList(ctx context.Context, args []string) ([]*listed, error) {
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=ImportPath," +
		"Dir,Export,DepOnly,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Module"}, args...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var found []*listed
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		l := &listed{}
		if err := decoder.Decode(l); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		found = append(found, l)
	}
}

// distances returns how many imports lead from a package or its tests to each other one.
func (w *world) distances(l *listed) map[string]int {
	found := map[string]int{}
	next := slices.Concat(l.Imports, l.TestImports, l.XTestImports)
	for distance := 1; len(next) > 0; distance++ {
		var further []string
		for _, path := range next {
			if _, seen := found[path]; !seen {
				found[path] = distance
				further = append(further, w.imported[path]...)
			}
		}
		next = further
	}
	return found
}

// source is a file of a package.
type source struct {
	path string
	text []byte
}

// loaded is a package with its syntax and types.
type loaded struct {
	*listed
	sources []source
	checked
}

// checked is what the type checker found.
type checked struct {
	files  *token.FileSet
	syntax []*ast.File
	info   *types.Info
	types  *types.Package
	errors []types.Error
}

func (w *world) load(l *listed) (*loaded, error) {
	p := &loaded{listed: l}
	for _, name := range l.GoFiles {
		path := filepath.Join(l.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p.sources = append(p.sources, source{path, text})
	}
	var err error
	if p.checked, err = check(l.ImportPath, p.sources, w.importer); err != nil {
		return nil, err
	}
	if len(p.errors) > 0 {
		return nil, fmt.Errorf("package %s: %w", l.ImportPath, p.errors[0])
	}
	return p, nil
}

// check parses and checks the files of a package.
func check(path string, sources []source, imports types.Importer) (checked, error) {
	c := checked{files: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	for _, s := range sources {
		parsed, err := parser.ParseFile(c.files, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return checked{}, err
		}
		c.syntax = append(c.syntax, parsed)
	}
	config := types.Config{Importer: imports, Error: func(err error) {
		var found types.Error
		if errors.As(err, &found) {
			c.errors = append(c.errors, found)
		}
	}}
	// Errors are in c.errors, the first one also here.
	c.types, _ = config.Check(path, c.files, c.syntax, c.info)
	return c, nil
}
