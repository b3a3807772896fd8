package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// In the cache an object of others holds nothing but these: the digest of its data, and the keys. No
// annotation that the API server takes begins with a slash, so that they tell what is trimmed already.
const (
	contentDigest = "/digest"
	contentKeys   = "/keys"
)

// ReferenceCache makes the cache of what operands need of others; it must be started. It is apart from that of
// the manager, which holds what is the operator's only. Of the data it keeps a digest and the keys, so that
// no Secret stays in memory. Of admission policies it holds the one binding that the operator may read.
func ReferenceCache(config *rest.Config, namespace string, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	options.DefaultTransform = TrimReference
	options.ByObject = map[client.Object]cache.ByObject{
		&admissionv1.ValidatingAdmissionPolicyBinding{}: {Field: fields.OneTermEqualSelector("metadata.name", labels.DiscoveryFence)},
	}
	return cache.New(config, options)
}

// ReferenceKinds are the kinds of objects that operands may need of others.
func ReferenceKinds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{}, &corev1.Secret{}, &schedulingv1.PriorityClass{}, &admissionv1.ValidatingAdmissionPolicyBinding{},
	}
}

// Contents reads what references lead to; what is not in the answer does not exist.
func Contents(ctx context.Context, reader client.Reader, namespace string, references []operand.Reference) (map[operand.Reference]operand.Content, error) {
	contents := map[operand.Reference]operand.Content{}
	for _, reference := range references {
		key, object := client.ObjectKey{Namespace: namespace, Name: reference.Name}, client.Object(nil)
		switch reference.Kind {
		case operand.ConfigMap:
			object = &corev1.ConfigMap{}
		case operand.Secret:
			object = &corev1.Secret{}
		case operand.PriorityClass:
			object, key.Namespace = &schedulingv1.PriorityClass{}, ""
		case operand.ValidatingAdmissionPolicyBinding:
			object, key.Namespace = &admissionv1.ValidatingAdmissionPolicyBinding{}, ""
		}
		err := reader.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", reference, err)
		}
		about := object.GetAnnotations()
		contents[reference] = operand.Content{Digest: about[contentDigest], Keys: strings.Fields(about[contentKeys])}
	}
	return contents, nil
}

// ContentChanges lets pass the events by which Contents has another answer.
func ContentChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// TrimReference keeps of an object that operands may need a digest of its data and the keys, before it enters the
// cache. What is there when a watch begins passes twice.
func TrimReference(object any) (any, error) {
	switch object := object.(type) {
	case *corev1.ConfigMap:
		data := map[string][]byte{}
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		maps.Copy(data, object.BinaryData)
		return &corev1.ConfigMap{ObjectMeta: describeContent(object.ObjectMeta, data)}, nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: describeContent(object.ObjectMeta, object.Data)}, nil
	case *schedulingv1.PriorityClass:
		return &schedulingv1.PriorityClass{ObjectMeta: describeContent(object.ObjectMeta, nil)}, nil
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: describeContent(object.ObjectMeta, nil)}, nil
	default:
		return object, nil
	}
}

// describeContent puts a digest of the data and its keys in the place of the annotations, if they are not there.
func describeContent(meta metav1.ObjectMeta, data map[string][]byte) metav1.ObjectMeta {
	if _, trimmed := meta.Annotations[contentDigest]; trimmed {
		return meta
	}
	sum := digest.New()
	keys := slices.Sorted(maps.Keys(data))
	for _, key := range keys {
		fmt.Fprintf(sum, "%q %q;", key, data[key])
	}
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		// A key of a ConfigMap or Secret has no space in it.
		Annotations: map[string]string{contentDigest: sum.String(), contentKeys: strings.Join(keys, " ")},
	}
}
