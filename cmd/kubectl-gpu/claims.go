package main

import (
	"context"
	"encoding/json"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

const (
	// resourceAPI is the path of the API of claims (DRA), before its version.
	resourceAPI = "/apis/resource.k8s.io/"
	// firstWithMapping is its first version in which a DeviceClass maps an extended resource.
	firstWithMapping = "v1"
)

// listClaims lists the resource claims of a namespace, of all for "", that the query selects. A cluster that does not
// serve them has none.
func listClaims(
	ctx context.Context, asked *session, namespace string, query url.Values,
) (found []*resourcev1.ResourceClaim, err error) {
	path := "/resourceclaims"
	if namespace != "" {
		path = "/namespaces/" + namespace + path
	}
	for _, version := range gpuuse.ClaimVersions() {
		_, err = listJSON(ctx, asked, resourceAPI+version+path, query, typeJSON, func(text *json.RawMessage) {
			claim := &resourcev1.ResourceClaim{}
			if json.Unmarshal(*text, claim) == nil { // One that is left out counts as holding GPUs.
				found = append(found, claim)
			}
		})
		if !answered(err, "NotFound") {
			return found, err
		}
	}
	return nil, nil
}

// claimsOf reads the claims of a pod. The user need not have the right: what is not read may be a claim for GPUs.
func claimsOf(ctx context.Context, asked *session, pod *corev1.Pod) []*resourcev1.ResourceClaim {
	var all []*resourcev1.ResourceClaim
	for _, name := range gpuuse.ClaimsOf(pod) {
		found, err := listClaims(ctx, asked, pod.Namespace, url.Values{"fieldSelector": {"metadata.name=" + name}})
		if err == nil {
			all = append(all, found...)
		}
	}
	return all
}

// mappedResources returns the extended resources that DeviceClasses map to claims; none if these cannot be read.
func mappedResources(ctx context.Context, asked *session) map[corev1.ResourceName]bool {
	mapped := map[corev1.ResourceName]bool{}
	_, err := listJSON(ctx, asked, resourceAPI+firstWithMapping+"/deviceclasses", nil, typeJSON,
		func(class *resourcev1.DeviceClass) {
			if name := class.Spec.ExtendedResourceName; name != nil {
				mapped[corev1.ResourceName(*name)] = true
			}
		})
	if err != nil {
		return nil
	}
	return mapped
}

// gpuClaims returns which claims of the cluster hold GPUs. If they cannot be read, each counts as holding some.
func gpuClaims(ctx context.Context, asked *session) (gpuuse.Claims, error) {
	all, err := listClaims(ctx, asked, "", nil)
	if err != nil {
		return nil, err
	}
	return gpuuse.Among(all), nil
}
