package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
)

// pageSize is how many objects one answer has.
const pageSize = 50

// list hands each object of a list to each, one after the other, and returns the resource version of the list. It holds
// at most three pages of pageSize objects.
func list[L runtime.Object, T any](
	ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions,
	each func(*T),
) (version string, err error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		objects, err := page(ctx, options)
		if err != nil {
			return nil, err
		}
		found, err := meta.ListAccessor(objects)
		if err != nil {
			return nil, err
		}
		version = found.GetResourceVersion()
		return objects, nil
	})
	pages.PageSize, pages.PageBufferSize = pageSize, 0
	err = pages.EachListItem(ctx, options, func(object runtime.Object) error {
		if found, isWanted := any(object).(*T); isWanted {
			each(found)
		}
		return nil
	})
	if err != nil { // A page may still be asked for.
		return "", said(err)
	}
	return version, nil
}

// watch hands each object that changes after a resource version to each, until the API server ends the watch: after
// some time, or because it no longer has the version. Then the list must be read again.
func watch[T any](
	ctx context.Context, start func(context.Context, metav1.ListOptions) (apiwatch.Interface, error),
	options metav1.ListOptions, version string, each func(deleted bool, object *T),
) error {
	options.ResourceVersion = version
	events, err := start(ctx, options)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return said(err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		object, isWanted := any(event.Object).(*T)
		if !isWanted { // The status of an error.
			return nil
		}
		each(event.Type == apiwatch.Deleted, object)
	}
	return nil
}

// headers returns the function that lists the metadata of objects of a core resource; of all namespaces for "".
func (s *session) headers(
	resource, namespace string,
) func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return s.metadata.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).List
}

// withField returns options for the objects among these whose field has a value.
func withField(options metav1.ListOptions, field, value string) metav1.ListOptions {
	selector := fields.OneTermEqualSelector(field, value).String()
	if options.FieldSelector != "" {
		selector = options.FieldSelector + "," + selector
	}
	options.FieldSelector = selector
	return options
}
