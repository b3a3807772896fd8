package pinned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/mod/modfile"

	"github.com/clusterpolicy/gpu-operator/test/filelock"
)

// Tool returns the path of a tool, in the version that test/tools/DIR/go.mod of the repository repo requires of a
// module. If it is missing in .cache/tools, make builds it first, with its output on standard error. The error names
// the go.mod that does not require the module, or is that of make.
func Tool(repo, dir, program, module string) (string, error) {
	version, err := versionOf(filepath.Join(repo, "test", "tools", dir, "go.mod"), module)
	if err != nil {
		return "", err
	}
	binary, err := filepath.Abs(filepath.Join(repo, ".cache", "tools", program+"-"+version))
	if err != nil {
		return "", fmt.Errorf("finding the repository %s: %w", repo, err)
	}
	// Two builds of the same tool would remove each other's files.
	unlock, err := filelock.Lock(filepath.Join(filepath.Dir(binary), "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(binary); !errors.Is(err, fs.ErrNotExist) {
		return binary, err
	}
	build := exec.Command("make", "-C", repo, binary)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building %s by make: %w", program, err)
	}
	return binary, nil
}

// versionOf returns the version of a module that a go.mod requires.
func versionOf(path, module string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the pins: %w", err)
	}
	file, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", fmt.Errorf("reading the pins: %w", err)
	}
	for _, required := range file.Require {
		if required.Mod.Path == module {
			return required.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, module)
}
