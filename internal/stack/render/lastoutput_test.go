package render_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// A container of any image has a termination message when it fails.
func TestTheLastOutputOfContainersIsKept(t *testing.T) {
	g := NewWithT(t)
	for name, sets := range (situation{}).daemonSets(t) {
		g.Expect(sets).NotTo(BeEmpty())
		for _, ds := range sets {
			for _, c := range containers(&ds.Spec.Template.Spec) {
				g.Expect(c.TerminationMessagePolicy).To(Equal(corev1.TerminationMessageFallbackToLogsOnError),
					"container %s of %s, operand %s", c.Name, ds.Name, name)
			}
		}
	}
}
