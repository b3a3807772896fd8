package dropin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

// fileRow has keys of a ConfigMap or Secret, or keys in one of its files, that have the same outcome.
type fileRow struct {
	Spec    string `json:"spec"`
	OS      string `json:"os"`
	Outcome string `json:"outcome"`
	// File has the text of each of the Cases, which are named by the key that a note or a refusal names.
	File  string            `json:"file"`
	Cases map[string]string `json:"cases"`
	// Keys of the ConfigMap, each alone, or beside those of Also.
	Keys []string `json:"keys"`
	Also []string `json:"also"`
	// Secret: the keys are those of a Secret, of which the operator reads no content.
	Secret bool `json:"secret"`
	// Says is what a note names instead of the key.
	Says string `json:"says"`
}

// contents are those of files that have to be readable.
var contents = map[string]string{
	"config.yaml":      "version: v1\nmig-configs:\n  all-disabled: [{devices: all, mig-enabled: false}]\n",
	"clients.yaml":     "version: v1\nsystemd-services: []\n",
	"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, a\n",
}

// No key of a ConfigMap or Secret, and none of a file in a ConfigMap, is without an effect and without a word.
func TestNoFileIsSilent(t *testing.T) {
	rows := readRows[fileRow](t, "testdata/files.yaml")
	count := 0
	check := func(row fileRow, named string, data map[string]string) {
		count++
		t.Run(fmt.Sprintf("%s %s %s %s", row.Spec, row.OS, row.Outcome, named), func(t *testing.T) {
			if got, says := outcomeOfFile(t, row, named, data); got != row.Outcome {
				t.Errorf("it is %s, want %s: %q", got, row.Outcome, says)
			}
		})
	}
	for _, row := range rows {
		for _, named := range slices.Sorted(maps.Keys(row.Cases)) {
			check(row, named, map[string]string{row.File: row.Cases[named]})
		}
		for _, key := range row.Keys {
			data := map[string]string{key: contents[key]}
			for _, other := range row.Also {
				data[other] = contents[other]
			}
			check(row, key, data)
		}
	}
	t.Logf("%d keys", count)
}

// outcomeOfFile returns what becomes of a ConfigMap that a policy names, and what the operator says.
func outcomeOfFile(t *testing.T, row fileRow, named string, data map[string]string) (outcome string, says []string) {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t}
	spec := v1.ClusterPolicySpec{}
	e.Expect(yaml.UnmarshalStrict([]byte(row.Spec), &spec)).To(Succeed())
	node := gpuNode("ubuntu", "24.04")
	if id, version, set := strings.Cut(row.OS, " "); set {
		node = gpuNode(id, version)
	}
	s, object := situation{spec: spec, nodes: []nodeinfo.Facts{node}}, "ConfigMap c"
	if row.Secret {
		s.keys, object = map[string][]string{"c": slices.Sorted(maps.Keys(data))}, "Secret c"
	} else {
		s.configMaps = []*corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: data}}
	}
	p := s.plan(e)
	if row.Says != "" {
		named = row.Says
	}
	for _, step := range p.Steps {
		if strings.Contains(step.Message, object) && strings.Contains(step.Message, named) {
			return "refused", []string{step.Message}
		}
	}
	// A licence in a ConfigMap is deprecated, whatever its keys.
	says = slices.Concat(fieldnotes.Unsupported(spec), fieldnotes.Doubtful(spec), p.Doubtful())
	if slices.ContainsFunc(says, func(note string) bool { return strings.Contains(note, named) }) {
		return "noted", says
	}
	if len(says) > 0 {
		return "noted otherwise", says
	}
	if s.mounts(e, "c", named) || len(row.Keys) == 0 && s.mounts(e, "c", "") {
		return "passed", nil
	}
	return "silent", nil
}

// mounts reports whether an object that is applied has a volume with a ConfigMap or Secret, and mentions its key.
func (s situation) mounts(e *env, name, key string) bool {
	e.t.Helper()
	for _, intents := range s.intents(e) {
		for _, intent := range intents {
			content, err := yaml.Marshal(intent.Object)
			e.Expect(err).NotTo(HaveOccurred())
			isIn := strings.Contains(string(content), "\n          name: "+name+"\n") ||
				strings.Contains(string(content), "\n          secretName: "+name+"\n")
			if isIn && strings.Contains(string(content), key) {
				return true
			}
		}
	}
	return false
}
