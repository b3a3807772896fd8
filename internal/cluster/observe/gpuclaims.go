package observe

import (
	"context"
	"errors"
	"fmt"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// GPUClaims reads which resource claims hold GPUs, by their allocation: each claim once, when it is asked for. It may
// be used by several goroutines.
type GPUClaims struct {
	live  client.Reader
	mu    sync.Mutex
	known map[client.ObjectKey]*gpuClaim
}

// gpuClaim is the answer for one claim.
type gpuClaim struct {
	read  sync.Once
	holds bool
	err   error
}

// NewGPUClaims returns GPUClaims that have read none. live must read from the API server.
func NewGPUClaims(live client.Reader) *GPUClaims {
	return &GPUClaims{live: live, known: map[client.ObjectKey]*gpuClaim{}}
}

// Assumed returns which claims hold GPUs, for a decision that must not disturb work on GPUs: one that cannot be read
// counts as holding some. Where the API server serves no claims, there are none.
func (c *GPUClaims) Assumed(ctx context.Context) gpuuse.Claims {
	return func(namespace, name string) bool {
		claim := c.get(ctx, client.ObjectKey{Namespace: namespace, Name: name})
		return claim.holds || claim.err != nil
	}
}

// Certain is Assumed for a decision that disturbs the pods that hold GPUs. Once it has been asked, failed returns why a
// claim could not be read; nil if all could. With an error the answers must not be used: the pod may have no GPU. A
// claim that does not exist, or that the operator may not read, is no failure, as waiting does not help: it counts as
// holding GPUs.
func (c *GPUClaims) Certain(ctx context.Context) (claims gpuuse.Claims, failed func() error) {
	var errs []error
	claims = func(namespace, name string) bool {
		claim := c.get(ctx, client.ObjectKey{Namespace: namespace, Name: name})
		if err := claim.err; err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			errs = append(errs, err)
		}
		return claim.holds || claim.err != nil
	}
	return claims, func() error { return errors.Join(errs...) }
}

// get reads the claim when it is asked for the first time.
func (c *GPUClaims) get(ctx context.Context, key client.ObjectKey) *gpuClaim {
	c.mu.Lock()
	claim, isKnown := c.known[key]
	if !isKnown {
		claim = &gpuClaim{}
		c.known[key] = claim
	}
	c.mu.Unlock()
	claim.read.Do(func() {
		status, err := claimStatus(ctx, c.live, key)
		if claim.err = err; err != nil {
			log.FromContext(ctx).V(1).Info("A resource claim cannot be read", "claim", key.String(), "error", err.Error())
			return
		}
		claim.holds = gpuuse.ClaimHolds(status)
	})
	return claim
}

// claimStatus reads the status of a claim in the newest version that is served; an empty one if none is.
func claimStatus(
	ctx context.Context, live client.Reader, key client.ObjectKey,
) (*resourcev1.ResourceClaimStatus, error) {
	status := &resourcev1.ResourceClaimStatus{}
	for _, version := range gpuuse.ClaimVersions() {
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
