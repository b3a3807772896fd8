package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// identifier is an exported name of a package or a type, or a method of the scopes of both controllers. Other names
// with a dot are mostly fields of the API and files.
var identifier = regexp.MustCompile(`^([A-Za-z]\w*)\.([A-Z]\w*)$|^(scope)\.([a-z]\w*)$`)

// goNames are the names that the repository declares: package.Name, Type.Member, and packages and types themselves.
type goNames map[string]bool

// exist checks names in Go, such as plan.Decide and Report.Next, of which the repository has the package or the type.
func (names goNames) exist(s snippet) []string {
	found := identifier.FindStringSubmatch(s.text)
	if found == nil || s.text == "scope.go" || !names[found[1]+found[3]] || names[s.text] {
		return nil
	}
	return []string{"no " + s.text + " in the code"}
}

// add takes up what a file declares.
func (names goNames) add(file *ast.File) {
	names[file.Name.Name] = true
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			names[file.Name.Name+"."+d.Name.Name] = true
			if d.Recv != nil {
				names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			names.addSpecs(file.Name.Name, d.Specs)
		}
	}
}

func (names goNames) addSpecs(in string, specs []ast.Spec) {
	for _, spec := range specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range s.Names {
				names[in+"."+name.Name] = true
			}
		case *ast.TypeSpec:
			names[in+"."+s.Name.Name], names[s.Name.Name] = true, true
			ast.Inspect(s.Type, func(node ast.Node) bool {
				if field, isField := node.(*ast.Field); isField {
					for _, name := range field.Names {
						names[s.Name.Name+"."+name.Name] = true
					}
				}
				return true
			})
		}
	}
}

// receiver returns the name of the type that a method has.
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestNamesInGoExist checks names of functions, methods and fields that the docs have as package.Name or Type.Name.
func TestNamesInGoExist(t *testing.T) {
	g := NewWithT(t)
	names := goNames{}
	for _, folder := range []string{"api", "cmd", "config", "internal", "test"} {
		g.Expect(filepath.WalkDir(filepath.Join(repo, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				names.add(file)
			}
			return err
		})).To(Succeed())
	}
	g.Expect(wrong(skip(pages(t), old), names.exist)).To(BeEmpty())
	g.Expect(wrong(seeded("`plan.Decide`, `plan.Divide`, `Operand.Decide`, `Operand.Undecide`, `status.nodes`, "+
		"`other.Name`, `scope.close`, `scope.open`"), names.exist)).To(Equal([]string{
		"x:1: no plan.Divide in the code", "x:1: no Operand.Undecide in the code", "x:1: no scope.open in the code",
	}))
}
