package dropin

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// variableRow has the variables of one list of the spec that have the same outcome: reaches (a container of the operand
// gets the value), mounted (its path on the host is), noted (by a condition, with the remedy) or refused (the operand
// is Invalid, and names it).
type variableRow struct {
	List      string            `json:"list"`
	Outcome   string            `json:"outcome"`
	Beside    string            `json:"beside"`
	Variables map[string]string `json:"variables"`
}

// No variable that the images of the stack or NVIDIA's validator know is without an effect and without a word.
func TestNoVariableIsSilent(t *testing.T) {
	rows := readRows[variableRow](t, "testdata/variables.yaml")
	count := 0
	for _, row := range rows {
		for _, name := range slices.Sorted(maps.Keys(row.Variables)) {
			count++
			t.Run(row.List+" "+name, func(t *testing.T) {
				if got := outcomeOf(t, row, name, row.Variables[name]); got != row.Outcome {
					t.Errorf("it is %s, want %s", got, row.Outcome)
				}
			})
		}
	}
	t.Logf("%d variables", count)
}

// outcomeOf sets one variable in an otherwise empty policy, or beside the given fields.
func outcomeOf(t *testing.T, row variableRow, name, value string) string {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t}
	blocks := strings.Split(row.List, ".")
	text := fmt.Sprintf("[{name: %s, value: %q}]", name, value)
	for _, block := range slices.Backward(blocks) {
		text = fmt.Sprintf("{%s: %s}", block, text)
	}
	spec := v1.ClusterPolicySpec{}
	e.Expect(yaml.UnmarshalStrict([]byte(row.Beside), &spec)).To(Succeed())
	e.Expect(yaml.UnmarshalStrict([]byte(text), &spec)).To(Succeed())
	node := gpuNode("ubuntu", "24.04")
	node.MIGCapable = "true"
	s := situation{spec: spec, nodes: []nodeinfo.Facts{node}, keys: map[string][]string{"metrics": {"dcgm-metrics.csv"}}}
	for _, note := range slices.Concat(fieldnotes.Of(spec), s.plan(e).Doubtful()) {
		if strings.Contains(note, name) {
			return "noted"
		}
	}
	if refusal := refusalOf(s.plan(e), name); refusal != "" {
		return "refused"
	}
	outcome := "silent"
	for _, intents := range s.intents(e) {
		for _, intent := range intents {
			content, err := yaml.Marshal(intent.Object)
			e.Expect(err).NotTo(HaveOccurred())
			if reaches(string(content), name, value) {
				return "reaches"
			}
			if dir := path.Dir(value); len(dir) > 1 && strings.Contains(string(content), "path: "+dir+"\n") {
				outcome = "mounted"
			}
		}
	}
	return outcome
}

func refusalOf(p plan.Plan, name string) string {
	for _, step := range p.Steps {
		if strings.Contains(step.Message, name) {
			return step.Message
		}
	}
	return ""
}

// reaches reports whether a container of the objects has the variable with the value.
func reaches(objects, name, value string) bool {
	quoted, err := yaml.Marshal(value)
	if err != nil {
		return false
	}
	for rest := objects; ; {
		_, after, found := strings.Cut(rest, "name: "+name+"\n")
		if !found {
			return false
		}
		line, _, _ := strings.Cut(strings.TrimLeft(after, " "), "\n")
		if line == "value: "+strings.TrimSpace(string(quoted)) {
			return true
		}
		rest = after
	}
}
