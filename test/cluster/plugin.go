package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

// PluginCommand returns the command that runs the plugin of kubectl, the binary, by the pinned kubectl, as users do.
// repo is the root of the repository. Both programs are linked into dir, which is empty.
func PluginCommand(ctx context.Context, repo, binary, dir string, args ...string) (*exec.Cmd, error) {
	kubectl, err := pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	if err != nil {
		return nil, fmt.Errorf("finding kubectl: %w", err)
	}
	for name, program := range map[string]string{"kubectl": kubectl, "kubectl-gpu": binary} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("linking %s: %w", name, err)
		}
	}
	return exec.CommandContext(ctx, filepath.Join(dir, "kubectl"), append([]string{"gpu"}, args...)...), nil
}
