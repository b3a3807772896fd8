package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/optional"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// errNotRead is returned while the API is served but does not answer.
var errNotRead = errors.New("reading ImageStream " + labels.DriverToolkitStream +
	": the API server has not answered yet; see the log of the operator")

// DriverToolkit watches the ImageStream of OpenShift's driver toolkit, and no other object, while its images are
// needed. An aggregated API server of OpenShift serves the ImageStream, so it may be unavailable at any time. A manager
// must run Start.
type DriverToolkit struct {
	*optional.Watch
	cache   cache.Cache
	changed notify.Signal
}

// NewDriverToolkit returns a DriverToolkit that is not started. The cache is one of DriverToolkitCache.
func NewDriverToolkit(images cache.Cache, mapper meta.RESTMapper, clock clock.Clock) *DriverToolkit {
	changed := notify.New()
	return &DriverToolkit{cache: images, changed: changed, Watch: optional.New(optional.Options{
		Object: imageStream(), Cache: images, Mapper: mapper, Clock: clock, Differs: imagesDiffer, Changed: changed,
	})}
}

// DriverToolkitCache returns the cache for a DriverToolkit; it must be started. It is separate from the manager's cache
// because it has a single object of another namespace.
func DriverToolkitCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{labels.DriverToolkitNamespace: {
		FieldSelector: fields.OneTermEqualSelector("metadata.name", labels.DriverToolkitName),
		Transform:     trimImageStream,
	}}
	return cache.New(config, options)
}

// Events returns a channel that has an event when the result of Images may have changed, for one receiver.
func (d *DriverToolkit) Events() <-chan event.GenericEvent { return d.changed.Events() }

// Images returns the images of the driver toolkit by release of Red Hat CoreOS, nil if the cluster has no such
// ImageStream or does not serve its API. The first call starts the watch.
func (d *DriverToolkit) Images(ctx context.Context) (map[string]string, error) {
	state, err := d.EnsureWatch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watching ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	if state != optional.Served {
		return nil, nil
	}
	if !d.Synced(ctx) {
		return nil, errNotRead
	}
	stream := imageStream()
	key := client.ObjectKey{Namespace: labels.DriverToolkitNamespace, Name: labels.DriverToolkitName}
	err = d.cache.Get(ctx, key, stream, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	return DriverToolkitImages(stream), nil
}

// StopWatch stops the watch.
func (d *DriverToolkit) StopWatch(ctx context.Context) error {
	if err := d.Watch.StopWatch(ctx); err != nil {
		return fmt.Errorf("stopping the watch of ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	return nil
}

// imagesDiffer reports whether an update of the ImageStream changes the images. OpenShift writes its status often.
func imagesDiffer(before, after any) bool {
	oldStream, isOld := before.(*unstructured.Unstructured)
	newStream, isNew := after.(*unstructured.Unstructured)
	return !isOld || !isNew || !maps.Equal(DriverToolkitImages(oldStream), DriverToolkitImages(newStream))
}

// imageStream returns an empty ImageStream.
func imageStream() *unstructured.Unstructured {
	stream := &unstructured.Unstructured{}
	stream.SetAPIVersion("image.openshift.io/v1")
	stream.SetKind("ImageStream")
	return stream
}

// DriverToolkitImages returns the images in spec.tags of the driver toolkit's ImageStream. The names of the tags are
// releases of Red Hat CoreOS. The image of a tag that does not refer to one in a registry is empty, because pods cannot
// use it.
func DriverToolkitImages(stream *unstructured.Unstructured) map[string]string {
	images := map[string]string{}
	for _, tag := range tagsOf(stream) {
		kind, _, _ := unstructured.NestedString(tag, "from", "kind")
		image, _, _ := unstructured.NestedString(tag, "from", "name")
		name, _, _ := unstructured.NestedString(tag, "name")
		if kind != "DockerImage" || name == "" {
			image = ""
		}
		images[name] = image
	}
	return images
}

func tagsOf(stream *unstructured.Unstructured) []map[string]any {
	// No copy: cached objects are not modified. A value that is not a list is ignored.
	found, _, _ := unstructured.NestedFieldNoCopy(stream.Object, "spec", "tags")
	list, _ := found.([]any)
	var tags []map[string]any
	for _, item := range list {
		if tag, isTag := item.(map[string]any); isTag {
			tags = append(tags, tag)
		}
	}
	return tags
}

// trimImageStream keeps the references of an ImageStream's tags. Most of its size is their history.
func trimImageStream(object any) (any, error) {
	stream, isStream := object.(*unstructured.Unstructured)
	if !isStream {
		return object, nil
	}
	trimmed := imageStream()
	trimmed.SetNamespace(stream.GetNamespace())
	trimmed.SetName(stream.GetName())
	trimmed.SetUID(stream.GetUID())
	trimmed.SetResourceVersion(stream.GetResourceVersion())
	tags := make([]any, 0, len(tagsOf(stream)))
	for _, tag := range tagsOf(stream) {
		from, _, _ := unstructured.NestedFieldCopy(tag, "from")
		tags = append(tags, map[string]any{"name": tag["name"], "from": from})
	}
	trimmed.Object["spec"] = map[string]any{"tags": tags}
	return trimmed, nil
}
