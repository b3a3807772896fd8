package main

import (
	"cmp"
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

// errNoResource: the server does not serve a resource, in the words of kubectl.
var errNoResource = errors.New("the server doesn't have a resource type")

// resource finds a resource as kubectl takes it. The namespace is ignored for one without.
func (s *session) resource(name, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := s.mapping(name)
	if meta.IsNoMatchError(err) {
		// It may have been installed since the resources were read.
		meta.MaybeResetRESTMapper(s.mapper)
		mapping, err = s.mapping(name)
	}
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("%w %q", errNoResource, name)
	}
	if err != nil {
		return nil, said(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = ""
	}
	return s.objects.Resource(mapping.Resource).Namespace(namespace), nil
}

func (s *session) mapping(name string) (*meta.RESTMapping, error) {
	full, short := schema.ParseResourceArg(name)
	kind := schema.GroupVersionKind{}
	if full != nil {
		kind, _ = s.mapper.KindFor(*full) // Otherwise it is of a group with two parts.
	}
	if kind.Empty() {
		var err error
		if kind, err = s.mapper.KindFor(short.WithVersion("")); err != nil {
			return nil, err
		}
	}
	return s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
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
		// A kind may have been removed since the resources were read.
		if _, err := list(ctx, resource.List, options, hand); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return failed
}

// target names an object.
type target struct{ resource, namespace, name string }

// String returns resource and name.
func (t target) String() string { return t.resource + " " + t.name }

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

// create creates an object with this content.
func (s *session) create(ctx context.Context, resource string, content map[string]any) error {
	object := &unstructured.Unstructured{}
	text, err := json.Marshal(content)
	if err == nil {
		err = object.UnmarshalJSON(text)
	}
	if err != nil {
		return fmt.Errorf("encoding an object: %w", err)
	}
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
// errStillThere. To wait it needs the right to get the objects.
func (s *session) remove(ctx context.Context, how deletion, all ...target) error {
	left := map[target]types.UID{}
	for _, of := range all {
		uid, err := s.delete(ctx, how, of)
		if err != nil && !apierrors.IsNotFound(err) {
			return said(err)
		}
		if err == nil && how.wait > 0 {
			left[of] = uid
		}
	}
	return awaitEnd(ctx, how.wait, func(ctx context.Context) (string, error) {
		for of, uid := range left {
			switch exists, err := s.exists(ctx, of, uid); {
			case err != nil:
				return of.String(), err
			case exists:
				return of.String(), nil
			}
			delete(left, of)
		}
		return "", nil
	})
}

// delete deletes an object. It returns its UID if how.wait is set, for which it reads the object first.
func (s *session) delete(ctx context.Context, how deletion, of target) (types.UID, error) {
	resource, err := s.resource(of.resource, of.namespace)
	if err != nil {
		return "", err
	}
	propagation := cmp.Or(how.propagation, metav1.DeletePropagationBackground)
	options := metav1.DeleteOptions{PropagationPolicy: &propagation}
	uid := types.UID("")
	if how.wait > 0 {
		object, err := resource.Get(ctx, of.name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		uid = object.GetUID()
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return uid, resource.Delete(ctx, of.name, options)
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

// awaitEnd waits until left returns no object. A call that fails is made again until then, unless the user has no right
// to it: the API server may be restarting.
func awaitEnd(
	ctx context.Context, timeout time.Duration, left func(context.Context) (string, error),
) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		remaining, err := left(ctx)
		if remaining == "" && err == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		select {
		case <-time.After(endInterval):
			continue
		case <-limited.Done():
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("waiting for the end of %s: %w", remaining, err)
		}
		return fmt.Errorf("%w of %s after %s", errStillThere, remaining, timeout)
	}
}
