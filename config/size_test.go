package config

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

// kubectl apply stores each object in one of its annotations, which the API server limits to 262,144 bytes together.
// What is installed stays well below, so that fields and patches can be added.
func TestObjectsFitIntoTheirAnnotation(t *testing.T) {
	const limit = 240_000
	g := NewWithT(t)
	objects, err := Build("default")
	g.Expect(err).NotTo(HaveOccurred())
	largest := 0
	for _, object := range objects {
		text, err := json.Marshal(object.Object)
		g.Expect(err).NotTo(HaveOccurred())
		size := len(text) + 1
		for key, value := range object.GetAnnotations() {
			size += len(key) + len(value)
		}
		largest = max(largest, size)
		g.Expect(size).To(BeNumerically("<", limit), "%s %s", object.GetKind(), object.GetName())
	}
	g.Expect(largest).To(BeNumerically(">", 100_000), "the definition of ClusterPolicies is among them")
	t.Logf("the largest object has %d bytes", largest)
}
