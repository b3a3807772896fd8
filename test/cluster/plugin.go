package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// EnsureKubectl returns the path of the pinned kubectl, which is built if it is missing. repo is the root of the
// repository.
func EnsureKubectl(repo string) (string, error) {
	kubectl, err := pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	if err != nil {
		return "", fmt.Errorf("finding kubectl: %w", err)
	}
	return kubectl, nil
}

// PluginCommand returns the command that runs the plugin of kubectl, the binary, by the pinned kubectl, as users do.
// Both programs are linked into dir, which is empty.
func PluginCommand(ctx context.Context, repo, binary, dir string, args ...string) (*exec.Cmd, error) {
	kubectl, err := EnsureKubectl(repo)
	if err != nil {
		return nil, err
	}
	for name, program := range map[string]string{"kubectl": kubectl, "kubectl-gpu": binary} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return exec.CommandContext(ctx, filepath.Join(dir, "kubectl"), append([]string{"gpu"}, args...)...), nil
}
