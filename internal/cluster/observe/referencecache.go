package observe

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// ReferenceCache returns the cache of objects that operands refer to; it must be started. It is separate from the
// manager's cache, which has only the operator's objects. It keeps a digest and the keys of the data, so that no Secret
// stays in memory, and of the bindings of admission policies the one that the operator may read.
func ReferenceCache(config *rest.Config, namespace string, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	options.DefaultTransform = TrimReference
	options.ByObject = map[client.Object]cache.ByObject{
		&admissionv1.ValidatingAdmissionPolicyBinding{}: {
			Field: fields.OneTermEqualSelector("metadata.name", labels.AgentPolicyBinding),
		},
	}
	return cache.New(config, options)
}
