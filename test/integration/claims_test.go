package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestClaimsOfEachKubernetes: only claims with a GPU hold one, whichever version of the API serves them,
// and none where no version does.
func TestClaimsOfEachKubernetes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options cluster.Options
		// version that claims are created in; empty where none are served.
		version string
	}{
		"newest": {cluster.Options{Version: cluster.Newest}, "v1"},
		"oldest": {cluster.Options{
			Version: cluster.Oldest, FeatureGates: []string{"DynamicResourceAllocation"},
			APIs: []string{"resource.k8s.io/v1beta1"},
		}, "v1beta1"},
		"oldest by default": {cluster.Options{Version: cluster.Oldest}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.options.Version == cluster.Oldest {
				cluster.SkipInSample(t)
			}
			t.Parallel()
			g := NewWithT(t)
			test.options.Bare = true
			live := cluster.NewClient(t, cluster.StartFor(t, test.options).Config)
			want := map[string]bool{"gpu": false, "nic": false}
			if test.version != "" {
				want["gpu"] = true
				for claim, driver := range map[string]string{"gpu": "gpu.nvidia.com", "nic": "dra.net"} {
					createClaim(t, live, test.version, claim, driver)
				}
			}
			claims := observe.NewGPUClaims(live).Assumed(t.Context())
			for claim, holds := range want {
				g.Expect(claims(corev1.NamespaceDefault, claim)).To(Equal(holds), claim)
			}
		})
	}
}

// createClaim creates a claim that has a device of the driver.
func createClaim(t *testing.T, live client.Client, version, name, driver string) {
	t.Helper()
	g := NewWithT(t)
	request := map[string]any{"name": "one"}
	if version == "v1beta1" {
		request["deviceClassName"] = "class"
	} else {
		request["exactly"] = map[string]any{"deviceClassName": "class"}
	}
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/" + version, "kind": "ResourceClaim",
		"metadata": map[string]any{"namespace": corev1.NamespaceDefault, "name": name},
		"spec":     map[string]any{"devices": map[string]any{"requests": []any{request}}},
	}}
	g.Expect(live.Create(t.Context(), claim)).To(Succeed())
	device := map[string]any{"request": "one", "driver": driver, "pool": "a", "device": "d"}
	claim.Object["status"] = map[string]any{
		"allocation": map[string]any{"devices": map[string]any{"results": []any{device}}},
	}
	g.Expect(live.Status().Update(t.Context(), claim)).To(Succeed())
}
