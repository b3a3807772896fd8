package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const ownModule = "github.com/clusterpolicy/gpu-operator/"

// function is a function, method or function literal of the repository.
type function struct {
	body *ast.BlockStmt
	file *file
}

// file is one of Go. It belongs to the package of its folder: that of external tests is not kept apart.
type file struct {
	path   string
	parsed *ast.File
	// imports are the folders of the packages of this repository that it imports, by their names in the file.
	imports map[string]string
}

func (f *file) folder() string { return path.Dir(f.path) }

// code is all Go code of the repository, of each of its modules. Types are not known: that takes minutes.
type code struct {
	positions *token.FileSet
	files     []*file
	// named are the functions of a folder by their names, and methods by theirs, whatever their receivers.
	named map[string]map[string][]function
	// asserts is whether a function reaches an assertion.
	asserts map[*ast.BlockStmt]bool
}

func newCode() *code {
	return &code{
		positions: token.NewFileSet(), named: map[string]map[string][]function{}, asserts: map[*ast.BlockStmt]bool{},
	}
}

// add adds a file, by its path in the repository.
func (c *code) add(name string, text []byte) error {
	parsed, err := parser.ParseFile(c.positions, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{path: name, parsed: parsed, imports: map[string]string{}}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if folder, isOwn := strings.CutPrefix(imported, ownModule); isOwn {
			local := path.Base(folder)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			f.imports[local] = folder
		}
	}
	if c.named[f.folder()] == nil {
		c.named[f.folder()] = map[string][]function{}
	}
	for _, declaration := range parsed.Decls {
		if d, is := declaration.(*ast.FuncDecl); is && d.Body != nil {
			c.named[f.folder()][d.Name.Name] = append(c.named[f.folder()][d.Name.Name], function{d.Body, f})
		}
	}
	c.files = append(c.files, f)
	return nil
}

// readCode reads all Go files of the repository.
func readCode() (*code, error) {
	c := newCode()
	return c, fs.WalkDir(os.DirFS(repo), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(repo, name))
		if err != nil {
			return err
		}
		return c.add(name, text)
	})
}

// reaches reports whether a function reaches an assertion, in itself or in what it names of the repository.
func (c *code) reaches(f function) bool {
	seen := map[*ast.BlockStmt]bool{}
	found := c.search(f, seen)
	if !found {
		// None of what was seen does. Otherwise a recursion may have been left before its end.
		for body := range seen {
			c.asserts[body] = false
		}
	}
	return found
}

// search is reaches but for the functions that were seen.
func (c *code) search(f function, seen map[*ast.BlockStmt]bool) bool {
	if known, is := c.asserts[f.body]; is {
		return known
	}
	if seen[f.body] {
		return false
	}
	seen[f.body] = true
	found := false
	anyOf := func(functions []function) bool {
		return slices.ContainsFunc(functions, func(f function) bool { return c.search(f, seen) })
	}
	ast.Inspect(f.body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			found = found || isAssertion(n)
		case *ast.Ident:
			found = found || anyOf(c.named[f.file.folder()][n.Name])
		case *ast.SelectorExpr:
			found = found || anyOf(c.selected(f.file, n))
		}
		return !found
	})
	if found {
		c.asserts[f.body] = true
	}
	return found
}

// selected returns the functions that a selector may mean: that of an imported package, or each method of that name in
// a package that the file knows.
func (c *code) selected(in *file, selector *ast.SelectorExpr) []function {
	if x, is := selector.X.(*ast.Ident); is {
		if folder, isImport := in.imports[x.Name]; isImport {
			return c.named[folder][selector.Sel.Name]
		}
	}
	var all []function
	for _, folder := range in.imports {
		all = append(all, c.named[folder][selector.Sel.Name]...)
	}
	return all // Those of its own folder are found by the identifier.
}
