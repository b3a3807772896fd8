package guides

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// definition is where a project releases definitions of its kinds: files of a Go module.
type definition struct {
	module, version string
	// sum is the checksum of the module, as in a go.sum: no module of this repository requires it.
	sum   string
	paths []string
}

// files returns the paths of the definitions in the module cache. The go command downloads the module if it is missing
// there.
func (d definition) files(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", d.module+"@"+d.version)
	// Outside of any module.
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading %s@%s: %w\n%s%s", d.module, d.version, err, stderr.Bytes(), output)
	}
	module := struct{ Dir, Sum string }{}
	if err := json.Unmarshal(output, &module); err != nil {
		return nil, fmt.Errorf("reading where %s is: %w", d.module, err)
	}
	if module.Sum != d.sum {
		return nil, fmt.Errorf("%s@%s has the checksum %s instead of %s", d.module, d.version, module.Sum, d.sum)
	}
	var files []string
	for _, path := range d.paths {
		files = append(files, filepath.Join(module.Dir, path))
	}
	return files, nil
}
