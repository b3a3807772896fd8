package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

const (
	// readWithin is how long the first answer about the ImageStream may take. Whoever asks waits for it, as
	// a node would be called impossible otherwise until it is there.
	readWithin = 2 * time.Second
	// askAgainAfter is when to look again for an API that is not served, as no event tells when it is.
	askAgainAfter = 10 * time.Second
)

// errNotRead is the failure of an API that is served and does not answer.
var errNotRead = errors.New("reading ImageStream " + labels.DriverToolkitStream + ": the API server has not answered yet; see the log for what it says")

// DriverToolkit watches the ImageStream of OpenShift's driver toolkit, as long as somebody asks for its
// images. Only that one object is watched. Its API is served by a server of OpenShift beside the API
// server, not by a definition, so that it may be missing at any time; nothing else waits for it.
type DriverToolkit struct {
	cache  cache.Cache
	mapper meta.RESTMapper
	clock  clock.Clock
	// listeners get an event when the images may have changed.
	listeners []chan event.GenericEvent

	// mutex guards what follows.
	mutex    sync.Mutex
	informer cache.Informer
	// since is when the informer was started.
	since time.Time
	// awaited: the API was not served when somebody asked, and is looked for again and again.
	awaited bool
	// stop ends what waits for the API or for the informer; nil where nothing does.
	stop context.CancelFunc
}

// NewDriverToolkit makes one that watches nothing yet. The cache is one of DriverToolkitCache.
func NewDriverToolkit(images cache.Cache, mapper meta.RESTMapper, clock clock.Clock) *DriverToolkit {
	return &DriverToolkit{cache: images, mapper: mapper, clock: clock}
}

// DriverToolkitCache makes the cache for a DriverToolkit; it must be started. It is apart from that of the
// manager, which cannot be told of kinds that are not served.
func DriverToolkitCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.DefaultNamespaces = map[string]cache.Config{labels.DriverToolkitNamespace: {
		FieldSelector: fields.OneTermEqualSelector("metadata.name", labels.DriverToolkitName),
		Transform:     trimImageStream,
	}}
	return cache.New(config, options)
}

// Events are a channel of events, one for each caller, that tell when Images may have another answer. It is
// to be called before anything runs.
func (d *DriverToolkit) Events() <-chan event.GenericEvent {
	// One that nobody has taken yet stands for all that follow.
	listener := make(chan event.GenericEvent, 1)
	d.listeners = append(d.listeners, listener)
	return listener
}

// Images are the images of the driver toolkit by release of Red Hat CoreOS, and nil if the cluster has no
// such ImageStream or does not serve its API. The first call starts to watch it.
func (d *DriverToolkit) Images(ctx context.Context) (map[string]string, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if started, err := d.watch(ctx); !started || err != nil {
		return nil, err
	}
	if !d.synced(ctx) {
		return nil, errNotRead
	}
	stream := imageStream()
	err := d.cache.Get(ctx, client.ObjectKey{Namespace: labels.DriverToolkitNamespace, Name: labels.DriverToolkitName}, stream, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	return DriverToolkitImages(stream), nil
}

// Forget ends the watch.
func (d *DriverToolkit) Forget(ctx context.Context) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.stop == nil {
		return nil
	}
	if d.informer != nil {
		if err := d.cache.RemoveInformer(ctx, imageStream()); err != nil {
			return fmt.Errorf("ending the watch of ImageStream %s: %w", labels.DriverToolkitStream, err)
		}
	}
	d.stop()
	d.informer, d.awaited, d.stop = nil, false, nil
	return nil
}

// watch starts to watch, and tells whether the API is served.
func (d *DriverToolkit) watch(ctx context.Context) (bool, error) {
	if d.informer != nil {
		return true, nil
	}
	if d.awaited {
		return false, nil
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	if served, err := d.served(); !served {
		d.awaited, d.stop = true, stop
		go d.await(running)
		return false, err
	}
	if err := d.follow(ctx, running); err != nil {
		stop()
		return false, err
	}
	d.stop = stop
	return true, nil
}

// served tells whether the kind can be read.
func (d *DriverToolkit) served() (bool, error) {
	kind := imageStream().GroupVersionKind()
	_, err := d.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the cluster for kind %s: %w", kind.Kind, err)
	}
	return true, nil
}

// await looks for the API until it is served, and tells so.
func (d *DriverToolkit) await(ctx context.Context) {
	for {
		select {
		case <-d.clock.After(askAgainAfter):
		case <-ctx.Done():
			return
		}
		// A failure has been told once. It passes, or the API is not there.
		if served, _ := d.served(); served {
			break
		}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if ctx.Err() == nil {
		d.stop()
		d.awaited, d.stop = false, nil
		d.tell()
	}
}

// follow starts the informer, and tells of what it sees for as long as running is not done.
func (d *DriverToolkit) follow(ctx, running context.Context) error {
	informer, err := d.cache.GetInformer(ctx, imageStream(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	if _, err := informer.AddEventHandler(d.changes()); err != nil {
		return fmt.Errorf("watching ImageStream %s: %w", labels.DriverToolkitStream, err)
	}
	d.informer, d.since = informer, d.clock.Now()
	go func() {
		// That there is no such object is no event of it.
		if toolscache.WaitForCacheSync(running.Done(), informer.HasSynced) {
			d.tell()
		}
	}()
	return nil
}

// changes tell of each change of the images. OpenShift writes the status of its ImageStreams again and again.
func (d *DriverToolkit) changes() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { d.tell() },
		UpdateFunc: func(before, after any) {
			was, isBefore := before.(*unstructured.Unstructured)
			is, isAfter := after.(*unstructured.Unstructured)
			if !isBefore || !isAfter || !maps.Equal(DriverToolkitImages(was), DriverToolkitImages(is)) {
				d.tell()
			}
		},
		DeleteFunc: func(any) { d.tell() },
	}
}

// synced tells whether the API server has answered, and gives it a little time from the start of the watch.
func (d *DriverToolkit) synced(ctx context.Context) bool {
	const step = 20 * time.Millisecond
	left := d.since.Add(readWithin).Sub(d.clock.Now())
	if d.informer.HasSynced() || left <= 0 {
		return d.informer.HasSynced()
	}
	answered := func(context.Context) (bool, error) { return d.informer.HasSynced(), nil }
	return wait.PollUntilContextTimeout(ctx, step, left, true, answered) == nil
}

func (d *DriverToolkit) tell() {
	for _, listener := range d.listeners {
		select {
		case listener <- event.GenericEvent{Object: imageStream()}:
		default:
		}
	}
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
