package yamlnode_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/kube/yamlnode"
)

func TestLine(t *testing.T) {
	const document = `# A comment.
kind: ClusterPolicy
spec:
  driver: &driver
    version: "1"

  tolerations:
    - key: a
    - key: b
      effect: c
  other: *driver
  limits:
    example.com/nic: 1
`
	for path, want := range map[string]int{
		"": 2, "kind": 2, "spec": 3, "spec.driver.version": 5, "spec.driver.missing": 4, "spec.missing.more": 3,
		"missing": 2, "spec.tolerations": 7, "spec.tolerations[0]": 8, "spec.tolerations[1].effect": 10,
		"spec.tolerations[2].key": 7, "spec.tolerations[-1]": 7, "spec.tolerations[x]": 7,
		"spec.other.version": 5, "spec.limits[example.com/nic]": 13, "spec.limits[example.com/other]": 12,
		"kind.below": 2, "spec..driver": 4, "spec[driver": 4,
	} {
		NewWithT(t).Expect(yamlnode.Line([]byte(document), path)).To(Equal(want), path)
	}
	for _, text := range []string{"", "# nothing", "a: [", "null"} {
		NewWithT(t).Expect(yamlnode.Line([]byte(text), "a")).To(Equal(0), text)
	}
	NewWithT(t).Expect(yamlnode.Line([]byte("{\n \"a\": {\n  \"b\": 1}}"), "a.b")).To(Equal(3), "JSON")
}
