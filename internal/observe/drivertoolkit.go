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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/notify"
	"github.com/clusterpolicy/gpu-operator/internal/optional"
)

// errNotRead is the failure of an API that is served and does not answer.
var errNotRead = errors.New("reading ImageStream " + labels.DriverToolkitStream +
	": the API server has not answered yet; see the log for what it says")

// DriverToolkit watches the ImageStream of OpenShift's driver toolkit while its images are needed. Only that one object
// is watched. Its API is served by a server of OpenShift beside the API server, not by a definition, so that it may be
// missing at any time; nothing else waits for it. A manager runs its Start.
type DriverToolkit struct {
	*optional.Watch
	cache   cache.Cache
	changed notify.Signal
}

// NewDriverToolkit makes one that watches nothing yet. The cache is one of DriverToolkitCache.
func NewDriverToolkit(images cache.Cache, mapper meta.RESTMapper, clock clock.Clock) *DriverToolkit {
	changed := notify.New()
	return &DriverToolkit{cache: images, changed: changed, Watch: optional.New(optional.Options{
		Object: imageStream(), Cache: images, Mapper: mapper, Clock: clock, Differs: imagesDiffer, Changed: changed,
	})}
}

// DriverToolkitCache makes the cache for a DriverToolkit; it must be started. It is not that of the manager, as it
// holds a single object of another namespace.
func DriverToolkitCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{labels.DriverToolkitNamespace: {
		FieldSelector: fields.OneTermEqualSelector("metadata.name", labels.DriverToolkitName),
		Transform:     trimImageStream,
	}}
	return cache.New(config, options)
}

// Events has an event when Images may have another answer, for one receiver.
func (d *DriverToolkit) Events() <-chan event.GenericEvent { return d.changed.Events() }

// Images are the images of the driver toolkit by release of Red Hat CoreOS, and nil if the cluster has no such
// ImageStream or does not serve its API. The first call starts to watch it.
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

// StopWatch ends the watch.
func (d *DriverToolkit) StopWatch(ctx context.Context) error {
	if err := d.Watch.StopWatch(ctx); err != nil {
		return fmt.Errorf("ending the watch of ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	return nil
}

// imagesDiffer reports whether an update of the ImageStream changes the images. OpenShift writes its status again and
// again.
func imagesDiffer(before, after any) bool {
	was, isBefore := before.(*unstructured.Unstructured)
	is, isAfter := after.(*unstructured.Unstructured)
	return !isBefore || !isAfter || !maps.Equal(DriverToolkitImages(was), DriverToolkitImages(is))
}

// imageStream is one without content. Its type is not among those of Kubernetes, and little of it is read.
func imageStream() *unstructured.Unstructured {
	stream := &unstructured.Unstructured{}
	stream.SetAPIVersion("image.openshift.io/v1")
	stream.SetKind("ImageStream")
	return stream
}

// DriverToolkitImages reads the images from the ImageStream of the driver toolkit: spec.tags, whose names are
// the releases of Red Hat CoreOS. A tag that does not name an image of a registry counts for nothing, as no
// pod could have it.
func DriverToolkitImages(stream *unstructured.Unstructured) map[string]string {
	images := map[string]string{}
	for _, tag := range tagsOf(stream) {
		kind, _, _ := unstructured.NestedString(tag, "from", "kind")
		image, _, _ := unstructured.NestedString(tag, "from", "name")
		name, _, _ := unstructured.NestedString(tag, "name")
		if kind == "DockerImage" && image != "" && name != "" {
			images[name] = image
		}
	}
	return images
}

func tagsOf(stream *unstructured.Unstructured) []map[string]any {
	// Without a copy: what is in a cache may be shared. Another type than a list is as good as none.
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

// trimImageStream keeps of an ImageStream where its tags point to: most of its bytes are their history.
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
