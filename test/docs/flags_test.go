package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var (
	flagName = regexp.MustCompile(`(?:^|[\s\["'(|=])(--[a-z][a-z0-9-]+)`)
	// others are the programs of others, whose flags are not checked.
	others = regexp.MustCompile(`(?:^|[\s;&|(])` +
		`(?:kubectl|helm|docker|podman|oc|ctr|crictl|git|kustomize|argocd|flux|az|eksctl|gcloud)\b`)
)

// foreignFlags are flags of other programs that the docs name without the program.
var foreignFlags = map[string]string{
	"--as":                      "of client-go",
	"--cascade":                 "of kubectl delete",
	"--context":                 "of client-go",
	"--force-conflicts":         "of kubectl apply and helm upgrade",
	"--no-hooks":                "of helm uninstall",
	"--reset-then-reuse-values": "of helm upgrade",
	"--reset-values":            "of helm upgrade",
	"--request-timeout":         "of client-go",
	"--root-dir":                "of the kubelet",
	"--register-with-taints":    "of the kubelet",
	"--restart-mode":            "of nvidia-ctk-installer",
	"--wait":                    "of helm install",
}

// flagsExist checks the flags of the repository's programs.
func flagsExist(names map[string]bool) check {
	return func(s snippet) (problems []string) {
		if others.MatchString(s.text) && !strings.Contains(s.text, "kubectl gpu ") {
			return nil
		}
		for _, found := range flagName.FindAllStringSubmatch(s.text, -1) {
			if _, foreign := foreignFlags[found[1]]; !foreign && !names[found[1]] {
				problems = append(problems, "no flag "+found[1])
			}
		}
		return problems
	}
}

// TestFlagsExist checks each flag that the docs name.
func TestFlagsExist(t *testing.T) {
	g := NewWithT(t)
	names := declaredFlags(t)
	for _, name := range []string{"--leader-elect", "--metrics-secure", "--copy-to", "--for", "--server-version"} {
		g.Expect(names).To(HaveKey(name))
	}
	exist := flagsExist(names)
	g.Expect(wrong(skip(pages(t), old), exist)).To(BeEmpty())
	g.Expect(wrong(seeded("`--leader-elect`, `--leader-elected=true`, `kubectl get --watch`, "+
		"`kubectl gpu render --node x`"), exist)).
		To(Equal([]string{"x:1: no flag --leader-elected", "x:1: no flag --node"}))
}

// declaredFlags are the flags that the programs in cmd and the tools in test and config declare.
func declaredFlags(t *testing.T) map[string]bool {
	t.Helper()
	constants, files := map[string]string{}, programs(t)
	each(files, func(spec *ast.ValueSpec) {
		if len(spec.Values) != 1 {
			return
		}
		if text, known := evaluate(spec.Values[0], constants); known {
			constants[spec.Names[0].Name] = text
		}
	})
	names := map[string]bool{"--help": true, "--version": true}
	each(files, func(call *ast.CallExpr) {
		if name, known := declaredBy(call, constants); known {
			names["--"+name] = true
		}
	})
	return names
}

// programs are the files in which flags and their names are declared. Constants come before their uses.
func programs(t *testing.T) []*ast.File {
	t.Helper()
	var files []*ast.File
	for _, folder := range []string{"internal/names/labels", "cmd", "config/image", "config/manifests", "test/docs"} {
		NewWithT(t).Expect(filepath.WalkDir(filepath.Join(repo, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			files = append(files, file)
			return err
		})).To(Succeed())
	}
	return files
}

// each visits all nodes of a kind.
func each[N ast.Node](files []*ast.File, visit func(N)) {
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if found, isOne := node.(N); isOne {
				visit(found)
			}
			return true
		})
	}
}

// kinds are those of the methods that declare a flag, such as StringVarP.
var kinds = regexp.MustCompile(`^(?:String|Bool|Int|Int64|Uint|Duration|StringSlice|StringArray|Func)?(Var)?P?$`)

// declaredBy returns the name of the flag that a call declares.
func declaredBy(call *ast.CallExpr, constants map[string]string) (string, bool) {
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod || len(call.Args) < 3 {
		return "", false
	}
	kind := kinds.FindStringSubmatch(method.Sel.Name)
	if kind == nil {
		return "", false
	}
	if kind[1] == "Var" {
		return evaluate(call.Args[1], constants)
	}
	return evaluate(call.Args[0], constants)
}

// evaluate returns the string that an expression is: a literal, a constant, or one of these trimmed.
func evaluate(expression ast.Expr, constants map[string]string) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		text, known := constants[e.Name]
		return text, known
	case *ast.SelectorExpr:
		return evaluate(e.Sel, constants)
	case *ast.CallExpr:
		if trim, isMethod := e.Fun.(*ast.SelectorExpr); !isMethod || trim.Sel.Name != "Trim" || len(e.Args) != 2 {
			return "", false
		}
		text, known := evaluate(e.Args[0], constants)
		cut, cutKnown := evaluate(e.Args[1], constants)
		return strings.Trim(text, cut), known && cutKnown
	}
	return "", false
}
