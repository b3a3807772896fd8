package reasons_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// Each reason has all three parts.
func TestAll(t *testing.T) {
	g := NewWithT(t)
	all, err := reasons.All()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveKey(v1.ReasonInvalidSpec))
	for reason, explanation := range all {
		g.Expect([]string{explanation.Meaning, explanation.Cause, explanation.Remedy}).NotTo(ContainElement(""), reason)
	}
}
