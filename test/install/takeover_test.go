package install

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// A Deployment gpu-operator of another operator stops the installation. With operator.takeOver it does so only in the
// namespace of the release, where Helm would have to overwrite it.
func TestTakeOverInstallsBesideAnotherOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const other = "nvidia-gpu-operator"
	e := newEnv(t, 0)
	definition := find(kustomize(t), "CustomResourceDefinition", "clusterpolicies.nvidia.com")
	foreign, err := packaged.Decode(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + other + `}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu-operator, namespace: ` + other + `}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: main, image: registry.example.com/other:v1}]}
`)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, []*unstructured.Unstructured{definition})).To(Succeed())
	for _, object := range foreign {
		e.Expect(e.client.Create(t.Context(), object)).To(Succeed())
	}
	install := func(in, values string) error {
		args := []string{"install", release, chart, "--namespace", in, "--create-namespace", "--dry-run=server"}
		_, err := e.tryHelm(append(args, set(values)...)...)
		return err
	}
	refused := MatchError(ContainSubstring("Deployment gpu-operator in namespace " + other + " is another operator"))
	e.Expect(install(namespace, "")).To(refused)
	e.Expect(install(namespace, "operator.takeOver=false")).To(refused)
	e.Expect(install(namespace, "operator.takeOver=true")).To(Succeed())
	e.Expect(install(other, "operator.takeOver=true")).To(refused)
}
