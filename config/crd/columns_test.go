package crd_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// kubectl get clusterpolicy prints NVIDIA's columns, Status and Age, with the values of its operator. Scripts cut
// Status out as the second column.
func TestPrinterColumns(t *testing.T) {
	g := NewWithT(t)
	definition := apiextensionsv1.CustomResourceDefinition{}
	g.Expect(yaml.Unmarshal(crd.ClusterPolicy, &definition)).To(Succeed())
	columns := definition.Spec.Versions[0].AdditionalPrinterColumns
	paths := map[string]string{}
	for _, column := range columns {
		paths[column.Name] = column.Type + " " + column.JSONPath
	}
	g.Expect(paths).To(And(HaveKeyWithValue("Status", "string .status.state"),
		HaveKeyWithValue("Age", "date .metadata.creationTimestamp")))
	g.Expect(columns[0].Name).To(Equal("Status"))
	g.Expect(columns[len(columns)-1].Name).To(Equal("Age"))
}
