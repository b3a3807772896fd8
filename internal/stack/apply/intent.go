package apply

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Intent returns the object as it is applied: without status and empty metadata, with its digest. It fails if the
// object cannot be converted, which is a programming error.
func Intent(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %s: %w", describe(object), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	intent := &unstructured.Unstructured{Object: content}
	owners := intent.GetOwnerReferences()
	// The owner's UID differs between clusters: the same spec must give the same digest.
	intent.SetOwnerReferences(nil)
	data, err := json.Marshal(intent.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", describe(object), err)
	}
	intent.SetOwnerReferences(owners)
	annotations := intent.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[labels.Digest] = digest.Of(data)
	intent.SetAnnotations(annotations)
	return intent, nil
}

// describe returns kind and name, for errors and logs.
func describe(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
}

// key identifies an object in the table.
func key(object client.Object) string {
	return object.GetObjectKind().GroupVersionKind().String() + " " + object.GetNamespace() + "/" + object.GetName()
}
