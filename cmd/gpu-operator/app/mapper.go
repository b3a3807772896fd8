package app

import (
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// newMapper returns the mapper of the manager: built-in kinds that every cluster serves are mapped statically, since
// the client consults the mapper on each read from the cache; all others are found by discovery.
func newMapper(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	found, err := apiutil.NewDynamicRESTMapper(config, client)
	if err != nil {
		return nil, err
	}
	return knownFirst{RESTMapper: found, known: knownKinds()}, nil
}

func knownKinds() map[schema.GroupVersionKind]*meta.RESTMapping {
	known := map[schema.GroupVersionKind]*meta.RESTMapping{}
	add := func(version schema.GroupVersion, kind, resource string, scope meta.RESTScope) {
		mapping := &meta.RESTMapping{
			Resource: version.WithResource(resource), GroupVersionKind: version.WithKind(kind), Scope: scope,
		}
		// The cache looks up the list kind.
		known[version.WithKind(kind)], known[version.WithKind(kind+"List")] = mapping, mapping
	}
	add(corev1.SchemeGroupVersion, "Node", "nodes", meta.RESTScopeRoot)
	add(corev1.SchemeGroupVersion, "Pod", "pods", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "ConfigMap", "configmaps", meta.RESTScopeNamespace)
	add(corev1.SchemeGroupVersion, "Service", "services", meta.RESTScopeNamespace)
	add(appsv1.SchemeGroupVersion, "DaemonSet", "daemonsets", meta.RESTScopeNamespace)
	add(nodev1.SchemeGroupVersion, "RuntimeClass", "runtimeclasses", meta.RESTScopeRoot)
	return known
}

// knownFirst maps the known kinds without discovery.
type knownFirst struct {
	meta.RESTMapper
	known map[schema.GroupVersionKind]*meta.RESTMapping
}

// RESTMapping implements meta.RESTMapper.
func (m knownFirst) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) == 1 {
		if mapping, known := m.known[kind.WithVersion(versions[0])]; known {
			return mapping, nil
		}
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}
