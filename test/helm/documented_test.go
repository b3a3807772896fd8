package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// nodes are those that policies are compared on.
const nodes = repo + "/cmd/kubectl-gpu/testdata/nodes.yaml"

// everyDefault is values.yaml with all that is commented out in force.
func everyDefault(g *WithT) string {
	data, err := os.ReadFile(chart + "/values.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.HasSuffix(line, "maxUnavailable: \"1\"\n") {
			continue // Node discovery, which is on every node, has 10% where nothing is said.
		}
		lines = append(lines, strings.TrimPrefix(line, "# ")) // "##" begins what is prose anyway
	}
	// What stands above the first block is prose.
	_, blocks, found := strings.Cut(strings.Join(lines, ""), "\n\n")
	g.Expect(found).To(BeTrue())
	return blocks
}

// Who uncomments a line of values.yaml changes nothing: what is shown there is what the operator does anyway.
func TestTheDocumentedDefaultsAreTheOperators(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	values := filepath.Join(dir, "values.yaml")
	g.Expect(os.WriteFile(values, []byte(everyDefault(g)), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "own.yaml"), []byte("mig: {strategy: single}"), 0o600)).To(Succeed())
	stacks := map[string]string{}
	for name, file := range map[string]string{"documented": values, "none": filepath.Join(dir, "own.yaml")} {
		text, err := render(t, "--values", file)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := decode(text)
		g.Expect(err).NotTo(HaveOccurred())
		policy, err := yaml.Marshal(policyOf(g, objects))
		g.Expect(err).NotTo(HaveOccurred())
		stacks[name] = stack(t, policy)
	}
	g.Expect(stacks["none"]).To(ContainSubstring("kind: DaemonSet"))
	g.Expect(cmp.Diff(stacks["none"], stacks["documented"])).To(BeEmpty())
}

// stack is what the operator would apply for a policy.
func stack(t *testing.T, policy []byte) string {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	g.Expect(os.WriteFile(path, policy, 0o600)).To(Succeed())
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/kubectl-gpu", "render", "-f", path, "--nodes", strings.TrimPrefix(nodes, repo+"/"))
	cmd.Dir = repo
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), "%s", complaint.String())
	return string(out)
}
