package app

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// Each command that reads or changes a cluster finds it in the same way, and fails with the same remedy.
func TestEveryCommandFindsTheCluster(t *testing.T) {
	t.Setenv(envNamespace, "gpu-operator")
	t.Setenv(envImage, "registry.example.com/gpu-operator:dev")
	// So that the limits of this process stay as they are.
	t.Setenv("GOMAXPROCS", "1")
	t.Setenv("GOGC", "100")
	missing := t.TempDir() + "/missing"
	for _, args := range [][]string{{}, {"apply-crds"}, {"delete-crds"}, {"check-ready"}} {
		t.Run(strings.Join(append([]string{"gpu-operator"}, args...), " "), func(t *testing.T) {
			g := NewWithT(t)
			cmd := command(Timing{})
			cmd.SetArgs(append(args, "--kubeconfig", missing))
			err := cmd.Execute()
			g.Expect(err).To(MatchError(And(HavePrefix("finding the cluster: "), ContainSubstring(missing),
				HaveSuffix(": set --kubeconfig or KUBECONFIG, or run in a pod"))))
		})
	}
}
