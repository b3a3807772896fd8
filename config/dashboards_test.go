package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The component adds one ConfigMap for each dashboard, which Grafana's sidecar finds and kubectl apply accepts.
func TestDashboards(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("dashboards/*.json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(4))
	plain, with := withComponents(t), withComponents(t, "dashboards")
	g.Expect(with).To(HaveLen(len(plain)+len(files)), "the component adds nothing else")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		object := with["ConfigMap/gpu-operator-dashboard-"+name]
		g.Expect(object).NotTo(BeNil(), name)
		g.Expect(object.GetNamespace()).To(Equal("gpu-operator"))
		g.Expect(object.GetLabels()).To(HaveKeyWithValue("grafana_dashboard", "1"))
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Object["data"]).To(Equal(map[string]any{"gpu-operator-" + name + ".json": string(text)}))
		whole, err := json.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(whole)).To(BeNumerically("<", 200_000), "the annotation of kubectl apply takes 262144 bytes")
	}
}
