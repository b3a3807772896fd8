package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// nvidiasObjects are some of what a release of NVIDIA's chart owns: its operator, its policy, and a part of Node
// Feature Discovery.
const nvidiasObjects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu-operator, labels: {app.kubernetes.io/component: gpu-operator}}
spec:
  selector: {matchLabels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
  template:
    metadata: {labels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
    spec:
      serviceAccountName: gpu-operator
      containers: [{name: gpu-operator, image: "nvcr.io/nvidia/gpu-operator:v26.7.0"}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: gpu-operator}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nfd-worker-conf, labels: {app.kubernetes.io/name: node-feature-discovery}}
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec: {driver: {enabled: true, version: 580.95.05}}
`

// TestMigrateOverTheRelease upgrades the release of NVIDIA's chart to this one between the steps of kubectl gpu migrate.
func TestMigrateOverTheRelease(t *testing.T) {
	t.Parallel()
	e := newEnv(t, 2)
	definition := find(kustomize(t), "CustomResourceDefinition", "clusterpolicies.nvidia.com")
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, []*unstructured.Unstructured{definition})).To(Succeed())
	theirs := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml": "{apiVersion: v2, name: gpu-operator, version: v26.7.0}", "templates/all.yaml": nvidiasObjects,
	} {
		path := filepath.Join(theirs, name)
		e.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		e.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	e.helm("install", release, theirs, "--create-namespace")
	policy := e.policy()
	account := &corev1.ServiceAccount{}
	account.Name, account.Namespace = "nvidia-driver", namespace
	account.OwnerReferences = ownedBy(policy)
	e.Expect(e.client.Create(t.Context(), account)).To(Succeed())
	unused := &corev1.ServiceAccount{}
	unused.Name, unused.Namespace, unused.OwnerReferences = "nvidia-vfio-manager", namespace, ownedBy(policy)
	e.Expect(e.client.Create(t.Context(), unused)).To(Succeed())

	out := e.migrates("--check", "-o", "json")
	report := map[string]any{}
	e.Expect(json.Unmarshal([]byte(out), &report)).To(Succeed(), out)
	e.Expect(report).To(And(HaveKeyWithValue("policy", "cluster-policy"), HaveKeyWithValue("blockers", BeEmpty())))
	_, err := e.kubectlGPU("", "migrate", "--finish", "--yes")
	e.Expect(err).To(HaveOccurred(), "NVIDIA's operator still runs")

	e.migrates("--yes")
	e.Expect(e.migrates("--yes")).To(Equal("Nothing is left to do.\n"))
	deployments := &appsv1.DeploymentList{}
	e.Expect(e.client.List(t.Context(), deployments, client.InNamespace(namespace))).To(Succeed())
	e.Expect(deployments.Items).To(BeEmpty())
	e.helm("upgrade", release, chart, "--no-hooks", "--take-ownership", "--set",
		"clusterPolicy.deployCR=false,operator.nodeSelector.pool=none")
	e.Expect(e.policy().UID).To(Equal(policy.UID), "the policy stays")
	e.Expect(e.policy().Spec.Driver.Version).To(Equal("580.95.05"))
	e.run(namespace)
	e.awaitReady()

	e.migrates("--finish", "--yes")
	e.Expect(e.migrates("--finish", "--yes")).To(Equal("Nothing is left to do.\n"))
	e.Expect(e.client.Get(t.Context(), client.ObjectKeyFromObject(account), account)).To(Succeed())
	e.Expect(account.OwnerReferences).To(BeEmpty())
	e.Eventually(func() error {
		return e.client.Get(t.Context(), client.ObjectKeyFromObject(unused), &corev1.ServiceAccount{})
	}).WithTimeout(time.Minute).Should(HaveOccurred())
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "nfd-worker-conf"},
		&corev1.ConfigMap{})).To(Succeed(), "Node Feature Discovery stays")
}

// migrates runs kubectl gpu migrate, and returns what it prints.
func (e *env) migrates(args ...string) string {
	e.t.Helper()
	out, err := e.kubectlGPU("", append([]string{"migrate"}, args...)...)
	e.Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// ownedBy returns the owner reference that NVIDIA's operator gives its objects.
func ownedBy(policy *v1.ClusterPolicy) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: policy.Name, UID: policy.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}
