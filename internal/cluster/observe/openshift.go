package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/notify"
	"github.com/clusterpolicy/gpu-operator/internal/kube/optional"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// OpenShift watches two objects of OpenShift's configuration, and no others, while the cluster has definitions of their
// kinds: Proxy "cluster" and ClusterVersion "version". A manager must run each of Watches.
type OpenShift struct {
	proxy, version *singleton
	changed        notify.Signal
}

// singleton is the watch of one object.
type singleton struct {
	*optional.Watch
	cache            cache.Cache
	definition, name string
	empty            *unstructured.Unstructured
}

// NewOpenShift returns an OpenShift without watches; Read starts them. The caches are those of OpenShiftCaches.
func NewOpenShift(proxies, versions cache.Cache, mapper meta.RESTMapper, clk clock.Clock) *OpenShift {
	o := &OpenShift{changed: notify.New()}
	watch := func(kind, definition, name string, objects cache.Cache) *singleton {
		empty := &unstructured.Unstructured{}
		empty.SetAPIVersion(labels.OpenShiftConfigGroup + "/v1")
		empty.SetKind(kind)
		return &singleton{cache: objects, definition: definition, name: name, empty: empty,
			Watch: optional.New(optional.Options{
				Object: empty, Cache: objects, Mapper: mapper, Clock: clk, Differs: clusterDiffers, Changed: o.changed,
			})}
	}
	o.proxy = watch("Proxy", labels.ProxyDefinition, labels.ProxyName, proxies)
	o.version = watch("ClusterVersion", labels.ClusterVersionDefinition, labels.ClusterVersionName, versions)
	return o
}

// OpenShiftCaches returns the caches for an OpenShift; they must be started. Each has a single object, because the
// operator may read no other one.
func OpenShiftCaches(config *rest.Config, options cache.Options) (proxies, versions cache.Cache, err error) {
	options.DefaultTransform = trimOpenShift
	only := func(name string) (cache.Cache, error) {
		options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.name", name)
		return cache.New(config, options)
	}
	if proxies, err = only(labels.ProxyName); err != nil {
		return nil, nil, err
	}
	versions, err = only(labels.ClusterVersionName)
	return proxies, versions, err
}

// Watches returns the watches.
func (o *OpenShift) Watches() []*optional.Watch {
	return []*optional.Watch{o.proxy.Watch, o.version.Watch}
}

// Events returns a channel that has an event when the result of Read may have changed, for one receiver.
func (o *OpenShift) Events() <-chan event.GenericEvent { return o.changed.Events() }

// Read returns what the objects have, given the CRDs of the cluster. If one that is defined cannot be read, it returns
// an error and nothing.
func (o *OpenShift) Read(ctx context.Context, crds map[string]bool) (operand.OpenShiftCluster, error) {
	singletons := []*singleton{o.proxy, o.version}
	for _, s := range singletons {
		if crds[s.definition] {
			s.StartDiscovery()
		}
	}
	// Both watches sync at the same time. An error that lasts comes again below.
	for _, s := range singletons {
		if crds[s.definition] {
			_, _ = s.EnsureWatch(ctx)
		}
	}
	var found operand.OpenShiftCluster
	var failed []error
	for _, s := range singletons {
		object, err := s.read(ctx, crds)
		if err != nil {
			failed = append(failed, fmt.Errorf("reading %s %s of OpenShift: %w", s.empty.GetKind(), s.name, err))
			continue
		}
		AddOpenShift(&found, object)
	}
	if len(failed) > 0 {
		return operand.OpenShiftCluster{}, errors.Join(failed...)
	}
	return found, nil
}

// errNoAnswerYet is returned while a kind is defined and the API server does not list it.
var errNoAnswerYet = errors.New("the API server has not answered yet; see the log of the operator")

// read returns the object; an empty one if it does not exist.
func (s *singleton) read(ctx context.Context, crds map[string]bool) (*unstructured.Unstructured, error) {
	if !crds[s.definition] {
		return s.empty, s.StopWatch(ctx)
	}
	state, err := s.EnsureWatch(ctx)
	switch {
	case err != nil:
		return nil, err
	case state != optional.Served || !s.Synced(ctx):
		return nil, errNoAnswerYet
	}
	object := s.empty.DeepCopy()
	err = s.cache.Get(ctx, client.ObjectKey{Name: s.name}, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return s.empty, nil
	}
	return object, err
}

// AddOpenShift adds what an object of OpenShift's configuration has. Objects of other kinds and names are ignored.
func AddOpenShift(cluster *operand.OpenShiftCluster, object *unstructured.Unstructured) {
	if object.GroupVersionKind().Group != labels.OpenShiftConfigGroup {
		return
	}
	switch object.GetKind() + " " + object.GetName() {
	case "Proxy " + labels.ProxyName:
		// OpenShift computes the status from the spec: it validates the addresses, and excludes the cluster's networks.
		cluster.Proxy = v1.ProxySpec{
			HTTPProxy: textAt(object, "status", "httpProxy"), HTTPSProxy: textAt(object, "status", "httpsProxy"),
			NoProxy: textAt(object, "status", "noProxy"),
		}
		if cluster.Proxy.HTTPProxy == "" && cluster.Proxy.HTTPSProxy == "" {
			cluster.Proxy = v1.ProxySpec{}
		}
		cluster.ProxyHasCA = cluster.Proxy != (v1.ProxySpec{}) && textAt(object, "spec", "trustedCA", "name") != ""
	case "ClusterVersion " + labels.ClusterVersionName:
		cluster.Version = minorOf(installedVersion(object))
	}
}

// installedVersion returns the newest release that was completely installed; empty if there is none. The history has
// the newest first.
func installedVersion(object *unstructured.Unstructured) string {
	history, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "history")
	list, _ := history.([]any)
	for _, item := range list {
		if entry, isEntry := item.(map[string]any); isEntry && entry["state"] == "Completed" {
			version, _ := entry["version"].(string)
			return version
		}
	}
	return ""
}

// minorOf returns the major and minor version of a release; empty if it has none.
func minorOf(release string) string {
	parts := strings.Split(release, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

func textAt(object *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(object.Object, path...)
	return text
}

// clusterDiffers reports whether an update changes what AddOpenShift reads. OpenShift writes both statuses often.
func clusterDiffers(before, after any) bool {
	var of [2]operand.OpenShiftCluster
	for i, object := range []any{before, after} {
		typed, isOne := object.(*unstructured.Unstructured)
		if !isOne {
			return true
		}
		AddOpenShift(&of[i], typed)
	}
	return of[0] != of[1]
}

// trimOpenShift keeps what AddOpenShift reads. Most of the size of a ClusterVersion is its history and the releases to
// which the cluster may be updated.
func trimOpenShift(object any) (any, error) {
	whole, isOne := object.(*unstructured.Unstructured)
	if !isOne {
		return object, nil
	}
	trimmed := &unstructured.Unstructured{}
	trimmed.SetGroupVersionKind(whole.GroupVersionKind())
	trimmed.SetName(whole.GetName())
	trimmed.SetUID(whole.GetUID())
	trimmed.SetResourceVersion(whole.GetResourceVersion())
	for _, path := range [][]string{
		{"spec", "trustedCA", "name"}, {"status", "httpProxy"}, {"status", "httpsProxy"}, {"status", "noProxy"},
	} {
		if text := textAt(whole, path...); text != "" {
			if err := unstructured.SetNestedField(trimmed.Object, text, path...); err != nil {
				return nil, fmt.Errorf("trimming %s %s: %w", whole.GetKind(), whole.GetName(), err)
			}
		}
	}
	if version := installedVersion(whole); version != "" {
		history := []any{map[string]any{"state": "Completed", "version": version}}
		if err := unstructured.SetNestedSlice(trimmed.Object, history, "status", "history"); err != nil {
			return nil, fmt.Errorf("trimming %s %s: %w", whole.GetKind(), whole.GetName(), err)
		}
	}
	return trimmed, nil
}
