package dropin

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// A chart with the names of NVIDIA's: its definition of the kind, and its operator.
const (
	nvidiasChart = `{apiVersion: v2, name: gpu-operator, version: v26.7.0, appVersion: v26.7.0}`

	nvidiasDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  names: {kind: ClusterPolicy, listKind: ClusterPolicyList, plural: clusterpolicies, singular: clusterpolicy}
  scope: Cluster
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {driver: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

	nvidiasDeployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: gpu-operator
  labels: {app.kubernetes.io/component: gpu-operator}
spec:
  selector: {matchLabels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
  template:
    metadata: {labels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
    spec:
      containers:
        - name: gpu-operator
          image: nvcr.io/nvidia/gpu-operator:v26.7.0
          command: [gpu-operator]
          env: [{name: OPERATOR_NAMESPACE, value: gpu-operator}]
`
	nvidiasClusterRole = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: gpu-operator}}`
)

// nvidias writes a chart like NVIDIA's, and returns its folder.
func (e *env) nvidias() string {
	e.t.Helper()
	dir := filepath.Join(e.t.TempDir(), "gpu-operator")
	for name, content := range map[string]string{
		"Chart.yaml": nvidiasChart, "crds/crd.yaml": nvidiasDefinition,
		"templates/deployment.yaml": nvidiasDeployment, "templates/role.yaml": nvidiasClusterRole,
	} {
		path := filepath.Join(dir, name)
		e.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		e.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	return dir
}

// TestBeforeBesideAndOverNVIDIAs installs the chart where NVIDIA's operator is or was.
func TestBeforeBesideAndOverNVIDIAs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.tryAll(besideLines, []row{
		{name: "over its release", verdict: refused, because: twoOperators, check: (*env).overItsRelease},
		{name: "beside its operator", verdict: refused, because: twoOperators, check: (*env).besideItsOperator},
		{
			name: "beside its operator of OLM", verdict: refused, because: twoOperators,
			check: (*env).besideItsBundle, full: true,
		},
		{
			name: "after its operator, as its definition stays", verdict: refused, because: twoOperators,
			check: (*env).afterItsOperator,
		},
		{name: "over its definition", verdict: honoured, check: (*env).overItsDefinition},
	})
}

func (e *env) overItsRelease() {
	e.helm("install", release, e.nvidias(), "--create-namespace")
	defer e.helm("uninstall", release)
	before, definition := e.deployment(), e.definition()
	_, err := e.tryHelm("upgrade", release, chart)
	e.Expect(err).To(MatchError(And(ContainSubstring("UPGRADE FAILED"),
		ContainSubstring("Deployment gpu-operator in namespace gpu-operator is another operator"),
		ContainSubstring("helm uninstall gpu-operator --namespace gpu-operator. Then run helm install"))))
	e.Expect(e.deployment()).To(Equal(before), "nothing is written")
	e.Expect(e.definition()).To(Equal(definition))
	e.Expect(e.helm("history", release)).NotTo(ContainSubstring("failed"))
}

func (e *env) besideItsOperator() {
	const theirs = "nvidia"
	_, err := e.tryHelm("install", "nvidias", e.nvidias(), "--create-namespace", "--namespace", theirs)
	e.Expect(err).NotTo(HaveOccurred())
	defer func() { _, _ = e.tryHelm("uninstall", "nvidias", "--namespace", theirs) }()
	e.refusedInstall("Deployment gpu-operator in namespace nvidia is another operator",
		"helm uninstall nvidias --namespace nvidia")
}

func (e *env) besideItsBundle() {
	deployment := decoded(e.WithT, nvidiasDeployment)
	deployment.SetNamespace("nvidia-gpu-operator")
	deployment.SetLabels(map[string]string{"olm.owner": "gpu-operator-certified.v26.7.0"})
	own := decoded(e.WithT, "{apiVersion: v1, kind: Namespace, metadata: {name: nvidia-gpu-operator}}")
	e.Expect(e.client.Create(e.t.Context(), own)).To(Succeed())
	e.Expect(e.client.Create(e.t.Context(), deployment)).To(Succeed())
	defer func() { e.Expect(e.client.Delete(e.t.Context(), deployment)).To(Succeed()) }()
	e.refusedInstall("Deployment gpu-operator in namespace nvidia-gpu-operator is another operator",
		"kubectl delete subscription,clusterserviceversion --all --namespace nvidia-gpu-operator")
}

// afterItsOperator installs as Helm 3 does, which leaves an existing definition as it is, and then as the message
// demands.
func (e *env) afterItsOperator() {
	e.replaceDefinition()
	e.refusedInstall("CustomResourceDefinition clusterpolicies.nvidia.com is that of another operator",
		"kubectl apply --server-side --force-conflicts -f CHART/crds/")
	e.applyDefinition()
	e.namesAreAccepted()
	e.helm("install", release, chart, "--skip-crds")
	e.helm("uninstall", release, "--no-hooks")
}

// overItsDefinition installs with Helm 4, which replaces an existing definition only on request if Helm 3 made it.
func (e *env) overItsDefinition() {
	e.replaceDefinition()
	_, err := e.tryHelm("install", release, chart)
	e.Expect(err).To(MatchError(ContainSubstring("failed to install CRD")))
	e.Expect(err).To(MatchError(ContainSubstring("conflict")))
	e.helm("install", release, chart, "--force-conflicts")
	e.helm("uninstall", release, "--no-hooks")
	e.namesAreAccepted()
}

// namesAreAccepted waits until the API server accepts all names of the definition. It refuses a short name that equals
// the singular, unless the definition is new.
func (e *env) namesAreAccepted() {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		conditions, _ := field(g, e.definition(), "status", "conditions").([]any)
		g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "NamesAccepted"),
			HaveKeyWithValue("status", "True"))), "%v", conditions)
		g.Expect(field(g, e.definition(), "status", "acceptedNames", "shortNames")).To(Equal([]any{"cp"}))
	}).WithTimeout(time.Minute).Should(Succeed())
}

// refusedInstall installs the chart as Helm 3 does: the message has these parts, and nothing is written.
func (e *env) refusedInstall(parts ...string) {
	e.t.Helper()
	definition := e.definition()
	_, err := e.tryHelm("install", release, chart, "--skip-crds")
	for _, part := range parts {
		e.Expect(err).To(MatchError(ContainSubstring(part)))
	}
	e.Expect(e.definition()).To(Equal(definition))
	e.Expect(e.helm("list", "--short")).To(BeEmpty())
	err = e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-operator"},
		decoded(e.WithT, nvidiasDeployment))
	e.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}

// replaceDefinition makes the definition NVIDIA's, as its chart leaves it behind.
func (e *env) replaceDefinition() {
	e.t.Helper()
	definition := decoded(e.WithT, nvidiasDefinition)
	// The API server writes its status.
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		definition.SetResourceVersion(e.definition().GetResourceVersion())
		return e.client.Update(e.t.Context(), definition, client.FieldOwner("helm"))
	})).To(Succeed())
}

func (e *env) deployment() *unstructured.Unstructured {
	e.t.Helper()
	deployment := decoded(e.WithT, nvidiasDeployment)
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-operator"},
		deployment)).To(Succeed())
	return deployment
}

func (e *env) definition() *unstructured.Unstructured {
	e.t.Helper()
	definition := decoded(e.WithT, nvidiasDefinition)
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
	return definition
}

func decoded(g *WithT, text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(text), &object.Object)).To(Succeed())
	return object
}
