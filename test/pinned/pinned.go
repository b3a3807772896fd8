package pinned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/mod/modfile"
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
	unlock, err := lock(filepath.Dir(binary))
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

// lock waits until no other test builds a tool: two builds of the same tool would remove each other's files.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the folder of the tools: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder of the tools: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", file.Name(), err), file.Close())
	}
	// Closing releases the lock.
	return func() { _ = file.Close() }, nil
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
