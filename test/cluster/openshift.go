package cluster

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ImageStreams returns the definition of the kind ImageStream: it replaces OpenShift's own API server, which really
// serves the kind.
func ImageStreams() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        "imagestreams.image.openshift.io",
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a stand-in for a test"},
		},
		"spec": map[string]any{
			"group": "image.openshift.io", "scope": "Namespaced",
			"names": map[string]any{
				"kind": "ImageStream", "listKind": "ImageStreamList", "plural": "imagestreams", "singular": "imagestream",
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		},
	}}
}

// DriverToolkit returns the ImageStream of OpenShift's driver toolkit with these images, by the release of Red Hat
// CoreOS, and with OpenShift's tag latest. Its namespace is openshift.
func DriverToolkit(images map[string]string) *unstructured.Unstructured {
	tags := []any{map[string]any{
		"name": "latest", "from": map[string]any{"kind": "DockerImage", "name": "quay.io/openshift/driver-toolkit"},
	}}
	for _, release := range slices.Sorted(maps.Keys(images)) {
		tags = append(tags,
			map[string]any{"name": release, "from": map[string]any{"kind": "DockerImage", "name": images[release]}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
		"metadata": map[string]any{"namespace": "openshift", "name": "driver-toolkit"},
		"spec":     map[string]any{"tags": tags},
	}}
}
