package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// nvidiasValues has the keys of NVIDIA's chart with their defaults, as users copy them.
const nvidiasValues = "testdata/nvidia-values.yaml"

// nodes are those for which the results of policies are compared.
const nodes = repo + "/cmd/kubectl-gpu/testdata/nodes.yaml"

// everyDefault returns values.yaml with all comments enabled.
func everyDefault(g *WithT) string {
	data, err := os.ReadFile(chart + "/values.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.HasSuffix(line, "maxUnavailable: \"1\"\n") {
			continue // Node discovery, which runs on every node, defaults to 10%.
		}
		lines = append(lines, strings.TrimPrefix(line, "# ")) // "##" begins prose
	}
	// The text above the first block is prose.
	_, blocks, found := strings.Cut(strings.Join(lines, ""), "\n\n")
	g.Expect(found).To(BeTrue())
	return blocks
}

// Uncommenting a line of values.yaml changes nothing: it documents the operator's default.
func TestTheDocumentedDefaultsAreTheOperators(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	values := filepath.Join(t.TempDir(), "values.yaml")
	g.Expect(os.WriteFile(values, []byte(everyDefault(g)), 0o600)).To(Succeed())
	nothing := stack(t)
	g.Expect(nothing).To(ContainSubstring("kind: DaemonSet"))
	// The API server refuses both ways of sharing in one policy.
	g.Expect(cmp.Diff(nothing, stack(t, "--values", values, "--set", "sharing.mps=null"))).To(BeEmpty())

	deployments := map[bool]map[string]any{}
	for documented, flags := range map[bool][]string{false: nil, true: {"--values", values}} {
		text, err := render(t, flags...)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := packaged.Decode(text)
		g.Expect(err).NotTo(HaveOccurred())
		deployments[documented] = find(objects, "Deployment", "gpu-operator").Object
	}
	g.Expect(cmp.Diff(deployments[false], deployments[true])).To(BeEmpty())
}

// The default values of NVIDIA's chart give the same as no values on a cluster without Prometheus: its ServiceMonitor
// of the exporter is enabled by default.
func TestAllValuesOfNVIDIAsChartMeanTheDefaults(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	// Node discovery, which runs on every node, defaults to 10%.
	nothing := stack(t, "--set", "daemonsets.rollingUpdate.maxUnavailable=1")
	g.Expect(cmp.Diff(nothing, stack(t, "--values", nvidiasValues))).To(BeEmpty())
}

// stack returns what the operator would apply for the policy of these Helm flags.
func stack(t *testing.T, flags ...string) string {
	t.Helper()
	g := NewWithT(t)
	text, err := render(t, flags...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(text)
	g.Expect(err).NotTo(HaveOccurred())
	policy, err := yaml.Marshal(policyOf(g, objects))
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "policy.yaml")
	g.Expect(os.WriteFile(path, policy, 0o600)).To(Succeed())
	program, err := plugin()
	g.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(t.Context(), program, "render", "-f", path, "--nodes", nodes)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), "%s", complaint.String())
	return string(out)
}
