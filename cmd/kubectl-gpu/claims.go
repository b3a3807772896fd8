package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// listClaims lists the resource claims of a namespace, of all for "", that the options select. A cluster that does not
// serve them has none.
func listClaims(
	ctx context.Context, asked *session, namespace string, options metav1.ListOptions,
) (found []*resourcev1.ResourceClaim, err error) {
	for _, version := range gpuuse.ClaimVersions() {
		resource := schema.GroupVersionResource{
			Group: resourcev1.GroupName, Version: version, Resource: "resourceclaims",
		}
		_, err = list(ctx, asked.objects.Resource(resource).Namespace(namespace).List, options,
			func(object *unstructured.Unstructured) {
				claim := &resourcev1.ResourceClaim{}
				// One that is left out counts as holding GPUs.
				if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, claim) == nil {
					found = append(found, claim)
				}
			})
		if !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	return nil, nil
}

// claimsOf reads the claims of a pod. The user need not have the right: what is not read may be a claim for GPUs.
func claimsOf(ctx context.Context, asked *session, pod *corev1.Pod) []*resourcev1.ResourceClaim {
	var all []*resourcev1.ResourceClaim
	for _, name := range gpuuse.ClaimsOf(pod) {
		found, err := listClaims(ctx, asked, pod.Namespace, withField(metav1.ListOptions{}, "metadata.name", name))
		if err == nil {
			all = append(all, found...)
		}
	}
	return all
}

// mappedResources returns the extended resources that DeviceClasses map to claims; none if these cannot be read. v1 is
// the first version in which a DeviceClass maps one.
func mappedResources(ctx context.Context, asked *session) map[corev1.ResourceName]bool {
	mapped := map[corev1.ResourceName]bool{}
	classes := resourcev1.SchemeGroupVersion.WithResource("deviceclasses")
	_, err := list(ctx, asked.objects.Resource(classes).List, metav1.ListOptions{},
		func(class *unstructured.Unstructured) {
			name, _, _ := unstructured.NestedString(class.Object, "spec", "extendedResourceName") // "" unless it is a text.
			if name != "" {
				mapped[corev1.ResourceName(name)] = true
			}
		})
	if err != nil {
		return nil
	}
	return mapped
}

// gpuClaims returns which claims of the cluster hold GPUs. If they cannot be read, each counts as holding some.
func gpuClaims(ctx context.Context, asked *session) (gpuuse.Claims, error) {
	all, err := listClaims(ctx, asked, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return gpuuse.Among(all), nil
}
