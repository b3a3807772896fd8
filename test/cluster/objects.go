package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// derived are the kinds that record what happens, or what the API server derives from other objects.
var derived = []string{"events", "leases", "componentstatuses", "apiservices", "endpoints", "endpointslices"}

// Objects returns all objects of all kinds that the API server lists, except what only follows from others, such as
// Events, Leases and endpoints.
func Objects(ctx context.Context, cfg *rest.Config) ([]*unstructured.Unstructured, error) {
	plain, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	var found []*unstructured.Unstructured
	err = eachObject(ctx, cfg, plain, func(_ schema.GroupVersionResource, object *unstructured.Unstructured) {
		found = append(found, object)
	})
	return found, err
}

// eachObject calls a function with each object of Objects and its kind. The client is one for the configuration.
func eachObject(
	ctx context.Context, cfg *rest.Config, plain dynamic.Interface,
	found func(schema.GroupVersionResource, *unstructured.Unstructured),
) error {
	resources, err := listed(cfg)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		items, err := plain.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // The definition has just been deleted.
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		for i := range items.Items {
			found(resource, &items.Items[i])
		}
	}
	return nil
}

// listed returns the kinds of Objects.
func listed(cfg *rest.Config) ([]schema.GroupVersionResource, error) {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	lists, err := server.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("listing the kinds: %w", err)
	}
	var found []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("listing the kinds: %w", err)
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && !slices.Contains(derived, resource.Name) {
				found = append(found, version.WithResource(resource.Name))
			}
		}
	}
	return found, nil
}
