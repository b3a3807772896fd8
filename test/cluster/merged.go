package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"golang.org/x/mod/modfile"
)

// WriteNVIDIAPrograms writes NVIDIA's own programs of these names into a folder. Those of a module are links to one
// program that is each of them, by the name under which it is started: what they share is in it once. It writes a line
// to progress for each module.
func WriteNVIDIAPrograms(ctx context.Context, dir string, progress io.Writer, names ...string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	tools, err := nvidiaTools(root, names)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write NVIDIA's programs: %w", err)
	}
	// The programs of a module follow each other.
	for len(tools) > 0 {
		n := 1
		for n < len(tools) && tools[n].module == tools[0].module {
			n++
		}
		fmt.Fprintf(progress, "building the programs of %s as one ...\n", tools[0].module)
		if err := merge(ctx, dir, tools[:n]); err != nil {
			return err
		}
		tools = tools[n:]
	}
	return nil
}

// merge writes programs of one module, which the module's own folder dir pins, as one.
//
// A program cannot be imported. So the module is copied, the main packages of the programs become packages with a
// function Main there, and a further program calls these.
func merge(ctx context.Context, out string, tools []tool) (err error) {
	first := tools[0]
	temp, err := os.MkdirTemp("", "gpu-operator-merge-")
	if err != nil {
		return fmt.Errorf("merge the programs of %s: %w", first.module, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	source := filepath.Join(temp, "source")
	if err := copyModule(ctx, first, source); err != nil {
		return fmt.Errorf("merge the programs of %s: %w", first.module, err)
	}
	all := allInOne{dir: first.dir, pkg: first.module + "/allinone", flags: first.linkerFlags()}
	for _, t := range tools {
		if err := export(filepath.Join(source, strings.TrimPrefix(t.pkg, first.module))); err != nil {
			return fmt.Errorf("merge the programs of %s: %w", first.module, err)
		}
		all.files = append(all.files, filepath.Join(out, t.name))
	}
	goMod, err := replaceModule(first, temp, source)
	if err == nil {
		err = writeMain(filepath.Join(source, "allinone"), tools)
	}
	if err == nil && first.environment != nil {
		all.env, err = first.environment(ctx, out)
	}
	if err != nil {
		return fmt.Errorf("merge the programs of %s: %w", first.module, err)
	}
	all.env = append(all.env, "GOFLAGS="+buildFlags+" -modfile="+goMod)
	return all.write(ctx)
}

// copyModule copies the source of a tool's module, and downloads it before if needed.
func copyModule(ctx context.Context, t tool, to string) error {
	var output, stderr bytes.Buffer
	for _, args := range [][]string{{"mod", "download", t.module}, {"list", "-m", "-f={{.Dir}}", t.module}} {
		command := exec.CommandContext(ctx, "go", args...)
		command.Dir, command.Env = t.dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		output.Reset()
		command.Stdout, command.Stderr = &output, &stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("find the module: %w\n%s", err, &stderr)
		}
	}
	return os.CopyFS(to, os.DirFS(strings.TrimSpace(output.String())))
}

var (
	packageMain  = regexp.MustCompile(`(?m)^package main\b`)
	functionMain = regexp.MustCompile(`(?m)^func main\(\)`)
)

// export makes the package of a program one that can be imported, with the function Main.
func export(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found += len(functionMain.FindAll(text, -1))
		text = packageMain.ReplaceAll(text, []byte("package program"))
		text = functionMain.ReplaceAll(text, []byte("func Main()"))
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	if found != 1 {
		return fmt.Errorf("%s has %d functions main", filepath.Base(dir), found)
	}
	return nil
}

// replaceModule writes a go.mod that is the tool's but for the place of its module, with its go.sum.
func replaceModule(t tool, dir, source string) (string, error) {
	path := filepath.Join(t.dir, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		return "", err
	}
	if err := file.AddReplace(t.module, "", source, ""); err != nil {
		return "", err
	}
	if text, err = file.Format(); err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(t.dir, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	path = filepath.Join(dir, "go.mod")
	return path, errors.Join(os.WriteFile(path, text, 0o644), os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))
}

// mainText is the program that is several. Installers add .real to a name; a hook may get another one from its caller.
var mainText = template.Must(template.New("main.go").Parse(`package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
{{range $i, $tool := .}}
	program{{$i}} "{{$tool}}"{{end}}
)

func main() {
	programs := map[string]func(){ {{range $i, $tool := .}}
		filepath.Base("{{$tool}}"): program{{$i}}.Main,{{end}}
	}
	self, _ := os.Executable()
	for _, path := range []string{os.Args[0], self} {
		if program, ok := programs[strings.TrimSuffix(filepath.Base(path), ".real")]; ok {
			program()
			return
		}
	}
	fmt.Fprintf(os.Stderr, "unknown program %q; link this one under the name of the program\n", os.Args[0])
	os.Exit(2)
}
`))

// writeMain writes the program that calls the others.
func writeMain(dir string, tools []tool) error {
	var packages []string
	for _, t := range tools {
		packages = append(packages, t.pkg)
	}
	var text bytes.Buffer
	if err := mainText.Execute(&text, packages); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "main.go"), text.Bytes(), 0o644))
}
