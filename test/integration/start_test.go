package integration

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestRefusesToStart: if a prerequisite is missing, the manager exits immediately with an error.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{bare: true, timing: simulator.DefaultTiming()})
	e.removeCRD()
	for name, c := range map[string]struct {
		env     []string
		wantErr string
	}{
		"no namespace": {[]string{"KUBECONFIG=" + e.kubeconfig}, "OPERATOR_NAMESPACE is not set"},
		"no image": {
			[]string{"OPERATOR_NAMESPACE=" + namespace, "OPERATOR_IMAGE=", "KUBECONFIG=" + e.kubeconfig},
			"OPERATOR_IMAGE is not set",
		},
		"no cluster": {
			[]string{"OPERATOR_NAMESPACE=" + namespace, "HOME=/nonexistent"}, "set --kubeconfig or KUBECONFIG",
		},
		"no CRD": {
			[]string{"OPERATOR_NAMESPACE=" + namespace, "KUBECONFIG=" + e.kubeconfig}, "install the CRD first",
		},
		"no such server": {
			[]string{"OPERATOR_NAMESPACE=" + namespace, "KUBECONFIG=" + e.deadKubeconfig()}, "connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			manager := exec.CommandContext(ctx, e.binary, "--health-probe-bind-address=0", "--metrics-bind-address=0")
			manager.Env = append([]string{"OPERATOR_IMAGE=registry.example.com/gpu-operator:dev"}, c.env...)
			output, err := manager.CombinedOutput()
			e.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
			e.Expect(manager.ProcessState.ExitCode()).To(Equal(1), "%s", output)
			e.Expect(string(output)).To(And(ContainSubstring(c.wantErr), HavePrefix("gpu-operator: ")))
		})
	}
}

// removeCRD deletes the CRD ClusterPolicy.
func (e *env) removeCRD() {
	e.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("clusterpolicies.nvidia.com")
	e.Expect(e.client.Delete(e.t.Context(), crd)).To(Succeed())
	e.Eventually(func() bool {
		return apierrors.IsNotFound(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(crd), crd))
	}).Should(BeTrue())
}

// deadKubeconfig returns a kubeconfig with a server that does not listen.
func (e *env) deadKubeconfig() string {
	e.t.Helper()
	path := e.t.TempDir() + "/kubeconfig"
	e.Expect(os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600)).To(Succeed())
	return path
}
