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

// TestRefusesToStart: where something is missing that the manager needs, it ends at once and says what.
func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{bare: true, timing: simulator.DefaultTiming()})
	b.removeCRD()
	for name, c := range map[string]struct {
		env  []string
		says string
	}{
		"no namespace":   {[]string{"KUBECONFIG=" + b.kubeconfig}, "OPERATOR_NAMESPACE is not set"},
		"no cluster":     {[]string{"OPERATOR_NAMESPACE=" + namespace, "HOME=/nonexistent"}, "set --kubeconfig or KUBECONFIG"},
		"no CRD":         {[]string{"OPERATOR_NAMESPACE=" + namespace, "KUBECONFIG=" + b.kubeconfig}, "install the CRD first"},
		"no such server": {[]string{"OPERATOR_NAMESPACE=" + namespace, "KUBECONFIG=" + b.deadKubeconfig()}, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			manager := exec.CommandContext(ctx, b.binary, "--health-probe-bind-address=0", "--metrics-bind-address=0")
			manager.Env = c.env
			output, err := manager.CombinedOutput()
			b.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
			b.Expect(manager.ProcessState.ExitCode()).To(Equal(1), "%s", output)
			b.Expect(string(output)).To(And(ContainSubstring(c.says), HavePrefix("gpu-operator: ")))
		})
	}
}

// removeCRD takes the kind ClusterPolicy off the cluster.
func (b *bed) removeCRD() {
	b.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("clusterpolicies.nvidia.com")
	b.Expect(b.client.Delete(b.t.Context(), crd)).To(Succeed())
	b.Eventually(func() bool {
		return apierrors.IsNotFound(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(crd), crd))
	}).Should(BeTrue())
}

// deadKubeconfig names a server that does not listen.
func (b *bed) deadKubeconfig() string {
	b.t.Helper()
	path := b.t.TempDir() + "/kubeconfig"
	b.Expect(os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600)).To(Succeed())
	return path
}
