package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// definitions are the CustomResourceDefinitions.
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// endInterval is the time between two looks at objects that are to end.
const endInterval = 500 * time.Millisecond

// errStillThere: objects that are deleted have not ended in time.
var errStillThere = errors.New("timed out waiting for the end")

// selection is what get reads.
type selection struct {
	// resources as kubectl takes them, such as nodes and daemonsets.apps, separated by commas.
	resources string
	// names of the objects, for one resource; none for all. One that does not exist is left out.
	names []string
	// namespace; empty for all. It is ignored for resources without.
	namespace     string
	label, fields string
	// managers: with the managed fields.
	managers bool
}

// resource finds a resource as kubectl takes it. The namespace is ignored for one without.
func (s *session) resource(name, namespace string) (dynamic.ResourceInterface, error) {
	full, short := schema.ParseResourceArg(name)
	kind := schema.GroupVersionKind{}
	if full != nil {
		kind, _ = s.mapper.KindFor(*full) // Otherwise it is of a group with two parts.
	}
	if kind.Empty() {
		var err error
		if kind, err = s.mapper.KindFor(short.WithVersion("")); err != nil {
			return nil, said(err)
		}
	}
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, said(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	return s.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

// get calls a function for each object of a selection.
func (s *session) get(
	ctx context.Context, of selection, each func(*unstructured.Unstructured) error,
) error {
	for name := range strings.SplitSeq(of.resources, ",") {
		resource, err := s.resource(name, of.namespace)
		if err == nil {
			err = of.read(ctx, resource, each)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return nil
}

// read reads the objects of one resource.
func (of *selection) read(
	ctx context.Context, resource dynamic.ResourceInterface, each func(*unstructured.Unstructured) error,
) error {
	var failed error
	hand := func(object *unstructured.Unstructured) {
		if !of.managers {
			object.SetManagedFields(nil)
		}
		failed = errors.Join(failed, each(object))
	}
	for _, name := range of.names {
		object, err := resource.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return said(err)
		default:
			hand(object)
		}
	}
	if len(of.names) == 0 {
		options := metav1.ListOptions{LabelSelector: of.label, FieldSelector: of.fields}
		if _, err := list(ctx, resource.List, options, hand); err != nil {
			return err
		}
	}
	return failed
}

// target names an object.
type target struct{ resource, namespace, name string }

// patch patches an object, or a subresource, unless it is gone.
func (s *session) patch(
	ctx context.Context, of target, kind types.PatchType, content map[string]any, subresources ...string,
) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	resource, err := s.resource(of.resource, of.namespace)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, of.name, kind, text, metav1.PatchOptions{FieldManager: fieldManager}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return said(err)
}

// merge applies a merge patch to an object, unless it is gone.
func (s *session) merge(ctx context.Context, of target, content map[string]any) error {
	return s.patch(ctx, of, types.MergePatchType, content)
}

// create creates an object.
func (s *session) create(ctx context.Context, resource string, object *unstructured.Unstructured) error {
	of, err := s.resource(resource, object.GetNamespace())
	if err != nil {
		return err
	}
	_, err = of.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	return said(err)
}

// deletion is how objects are deleted.
type deletion struct {
	// propagation to dependents; empty for the background.
	propagation metav1.DeletionPropagation
	// wait is how long to wait until the objects are gone; 0 for not at all.
	wait time.Duration
}

// remove deletes objects that exist, and then waits for all of them. The error of those that have not ended in time is
// errStillThere.
func (s *session) remove(ctx context.Context, how deletion, all ...target) error {
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if how.propagation != "" {
		options.PropagationPolicy = &how.propagation
	}
	left := map[target]types.UID{}
	for _, of := range all {
		resource, err := s.resource(of.resource, of.namespace)
		if err != nil {
			return err
		}
		object, err := resource.Get(ctx, of.name, metav1.GetOptions{})
		if err == nil {
			left[of] = object.GetUID()
			err = resource.Delete(ctx, of.name, options)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return said(err)
		}
	}
	if how.wait == 0 {
		return nil
	}
	return awaitEnd(ctx, how.wait, func(ctx context.Context) (string, error) {
		for of, uid := range left {
			switch exists, err := s.exists(ctx, of, uid); {
			case err != nil:
				return "", err
			case exists:
				return of.resource + " " + of.name, nil
			}
			delete(left, of)
		}
		return "", nil
	})
}

// exists reports whether the object with this UID exists.
func (s *session) exists(ctx context.Context, of target, uid types.UID) (bool, error) {
	resource, err := s.resource(of.resource, of.namespace)
	if err != nil {
		return false, err
	}
	object, err := resource.Get(ctx, of.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.GetUID() == uid, said(err)
}

// awaitEnd waits until left returns no object.
func awaitEnd(
	ctx context.Context, timeout time.Duration, left func(context.Context) (string, error),
) error {
	remaining := ""
	err := wait.PollUntilContextTimeout(ctx, endInterval, timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		remaining, err = left(ctx)
		return remaining == "", err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%w of %s after %s", errStillThere, remaining, timeout)
	}
	return err
}
