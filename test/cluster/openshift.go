package cluster

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ImageStreams returns the definition of the kind ImageStream: it replaces OpenShift's own API server, which really
// serves the kind.
func ImageStreams() *unstructured.Unstructured {
	return openShiftDefinition("image", "ImageStream", "imagestreams", "Namespaced")
}

// OpenShiftKinds returns the definitions of the kinds Proxy and ClusterVersion of OpenShift's configuration, without
// their schemas.
func OpenShiftKinds() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		openShiftDefinition("config", "Proxy", "proxies", "Cluster"),
		openShiftDefinition("config", "ClusterVersion", "clusterversions", "Cluster"),
	}
}

func openShiftDefinition(group, kind, plural, scope string) *unstructured.Unstructured {
	group += ".openshift.io"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        plural + "." + group,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a stand-in for a test"},
		},
		"spec": map[string]any{
			"group": group, "scope": scope,
			"names": map[string]any{
				"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind),
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

// OpenShiftProxy returns the Proxy of a cluster of OpenShift with this address. With withCA it has certificates.
func OpenShiftProxy(address string, withCA bool) *unstructured.Unstructured {
	authority := ""
	if withCA {
		authority = "user-ca-bundle"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": map[string]any{"name": "cluster"},
		"spec":   map[string]any{"httpsProxy": address, "trustedCA": map[string]any{"name": authority}},
		"status": map[string]any{"httpsProxy": address, "noProxy": ".cluster.local,.svc,10.128.0.0/14"},
	}}
}

// OpenShiftVersion returns the ClusterVersion of a cluster of OpenShift that is being updated from this release.
func OpenShiftVersion(release string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": map[string]any{"name": "version"},
		"spec": map[string]any{"channel": "stable", "clusterID": "11111111-2222-3333-4444-555555555555"},
		"status": map[string]any{
			"availableUpdates": []any{map[string]any{"version": "9.9.9"}},
			"history": []any{
				map[string]any{"state": "Partial", "version": "9.9.8"},
				map[string]any{"state": "Completed", "version": release},
				map[string]any{"state": "Completed", "version": "4.1.0"},
			},
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
