package observe

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// claimOf is a claim in namespace team with a device of the driver, in a version of the API; without a driver it is not
// allocated.
func claimOf(version, name, driver string, admin *bool) *unstructured.Unstructured {
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resource.k8s.io/" + version, "kind": "ResourceClaim",
		"metadata": map[string]any{"namespace": "team", "name": name},
	}}
	if driver != "" {
		device := map[string]any{"request": "one", "driver": driver, "pool": "a", "device": "d"}
		if admin != nil {
			device["adminAccess"] = *admin
		}
		claim.Object["status"] = map[string]any{
			"allocation": map[string]any{"devices": map[string]any{"results": []any{device}}},
		}
	}
	return claim
}

// serving is an API server that serves claims in these versions only. gets counts the reads that it answered.
func serving(gets *int, versions []string, objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(objects...).WithInterceptorFuncs(
		interceptor.Funcs{Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
		) error {
			kind := object.GetObjectKind().GroupVersionKind()
			for _, version := range versions {
				if version == kind.Version {
					*gets++
					return c.Get(ctx, key, object, options...)
				}
			}
			return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		}},
	).Build()
}

// The claims of each version that a supported Kubernetes serves are read alike.
func TestClaimsOfEachVersion(t *testing.T) {
	for version, served := range map[string][]string{
		"v1": {"v1", "v1beta2", "v1beta1"}, "v1beta2": {"v1beta2", "v1beta1"}, "v1beta1": {"v1beta1"},
	} {
		t.Run(version, func(t *testing.T) {
			g, gets := NewWithT(t), 0
			read := NewGPUClaims(serving(&gets, served,
				claimOf(version, "gpu", "gpu.nvidia.com", nil), claimOf(version, "admin", "gpu.nvidia.com", new(true)),
				claimOf(version, "nic", "dra.net", nil), claimOf(version, "pending", "", nil),
			))
			claims := read.Assumed(t.Context())
			certain, failed := read.Certain(t.Context())
			for name, want := range map[string]bool{"gpu": true, "admin": false, "nic": false, "pending": false, "gone": true} {
				g.Expect(claims("team", name)).To(Equal(want), name)
				g.Expect(certain("team", name)).To(Equal(want), name)
			}
			g.Expect(failed()).NotTo(HaveOccurred(), "a claim that is gone is none that may be read later")
			g.Expect(gets).To(Equal(5), "each is read once")
		})
	}
}

// refusing is an API server that answers each read of a claim with the error.
func refusing(err error) *GPUClaims {
	return NewGPUClaims(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
	}).Build())
}

// Where no claims are served, there are none. Those that cannot be read count, but pods are not evicted for them while
// they may be read later.
func TestClaimsThatCannotBeRead(t *testing.T) {
	gets := 0
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	malformed := claimOf("v1", "gpu", "dra.net", nil)
	malformed.Object["status"] = map[string]any{"allocation": "none"}
	for name, test := range map[string]struct {
		claims       *GPUClaims
		holds, fails bool
	}{
		"no such API":       {NewGPUClaims(serving(&gets, nil)), false, false},
		"forbidden":         {refusing(apierrors.NewForbidden(claims, "gpu", nil)), true, false},
		"not found":         {refusing(apierrors.NewNotFound(claims, "gpu")), true, false},
		"too many requests": {refusing(apierrors.NewTooManyRequests("later", 1)), true, true},
		"an internal error": {refusing(apierrors.NewInternalError(errors.New("etcd"))), true, true},
		"a timeout":         {refusing(context.DeadlineExceeded), true, true},
		"malformed":         {NewGPUClaims(serving(&gets, []string{"v1"}, malformed)), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.claims.Assumed(t.Context())("team", "gpu")).To(Equal(test.holds))
			certain, failed := test.claims.Certain(t.Context())
			g.Expect(failed()).NotTo(HaveOccurred(), "no claim was asked for")
			certain("team", "gpu")
			g.Expect(failed() != nil).To(Equal(test.fails), "%v", failed())
		})
	}
}
