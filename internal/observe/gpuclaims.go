package observe

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/gpuuse"
)

// claimVersions are the versions of resource.k8s.io that clusters serve claims in, the newest first: v1 from Kubernetes
// 1.34, and before that v1beta2 (1.33) and v1beta1 (1.32), where it is turned on. Status.allocation is alike in all.
var claimVersions = []string{"v1", "v1beta2", "v1beta1"}

// GPUClaims returns which resource claims hold GPUs, by their allocation. It reads a claim when it is asked for the
// first time. One that cannot be read counts as holding GPUs; where the API server serves no claims, there are none.
// live must read from the API server. The result is for one goroutine.
func GPUClaims(ctx context.Context, live client.Reader) gpuuse.Claims {
	known := map[client.ObjectKey]bool{}
	return func(namespace, name string) bool {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if holds, isKnown := known[key]; isKnown {
			return holds
		}
		status, err := claimStatus(ctx, live, key)
		if err != nil {
			log.FromContext(ctx).V(1).Info("A resource claim cannot be read, so it counts as one for GPUs",
				"claim", key.String(), "error", err.Error())
		}
		known[key] = err != nil || gpuuse.ClaimHolds(status)
		return known[key]
	}
}

// claimStatus reads the status of a claim in the newest version that is served; an empty one if none is.
func claimStatus(
	ctx context.Context, live client.Reader, key client.ObjectKey,
) (*resourcev1.ResourceClaimStatus, error) {
	status := &resourcev1.ResourceClaimStatus{}
	for _, version := range claimVersions {
		claim := &unstructured.Unstructured{}
		claim.SetGroupVersionKind(schema.GroupVersionKind{
			Group: resourcev1.GroupName, Version: version, Kind: "ResourceClaim",
		})
		err := live.Get(ctx, key, claim)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading resource claim %s: %w", key, err)
		}
		content, _, err := unstructured.NestedMap(claim.Object, "status")
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, status)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the status of resource claim %s: %w", key, err)
		}
		return status, nil
	}
	return status, nil
}
