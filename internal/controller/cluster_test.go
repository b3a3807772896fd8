package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// byNode is the index of pods by node, with the key that the caches of controller-runtime use.
const byNode = "field:" + observe.PodNodeField

func nodeKey(namespace, node string) string { return namespace + "/" + node }

// cluster is a fake API server with the operator's caches. Reads are served from indexers, without copies, as those
// of a cache. Applied objects go through the fake client. Nodes are patched in the indexer, as the fake client would
// keep a second copy of each.
type cluster struct {
	client.Client
	// mu guards the fields below: objects are applied concurrently.
	mu     sync.Mutex
	stores map[reflect.Type]toolscache.Indexer
	// podIndex is that of the cached pods.
	podIndex *observe.PodIndex
	// version is the last resource version.
	version int
	// writes counts the requests that write, by operation.
	writes map[string]int
	// onRead gets each object and list that was read; nil for nothing.
	onRead func(any)
}

func newCluster(scheme *runtime.Scheme) *cluster {
	c := &cluster{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(), podIndex: &observe.PodIndex{},
		stores: map[reflect.Type]toolscache.Indexer{}, writes: map[string]int{},
	}
	c.store(reflect.TypeFor[corev1.Pod]())
	return c
}

// as returns the object as a T, and panics if it is none.
func as[T any](object any) T {
	typed, is := object.(T)
	if !is {
		panic(fmt.Sprintf("%T is not a %s", object, reflect.TypeFor[T]()))
	}
	return typed
}

// store returns the indexer of a type of objects.
func (c *cluster) store(kind reflect.Type) toolscache.Indexer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stores[kind] == nil {
		var example runtime.Object
		indexers := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
		if kind == reflect.TypeFor[corev1.Pod]() {
			example = &corev1.Pod{}
			indexers[byNode] = func(object any) ([]string, error) {
				pod := as[*corev1.Pod](object)
				var keys []string
				for _, node := range observe.IndexPodNode(pod) {
					keys = append(keys, nodeKey("__all_namespaces", node), nodeKey(pod.Namespace, node))
				}
				return keys, nil
			}
		}
		c.stores[kind] = c.podIndex.NewInformer(&toolscache.ListWatch{}, example, 0, indexers).GetIndexer()
	}
	return c.stores[kind]
}

func (c *cluster) storeOf(object client.Object) toolscache.Indexer {
	return c.store(reflect.TypeOf(object).Elem())
}

// put stores objects in the cache, each with a new resource version.
func (c *cluster) put(objects ...client.Object) {
	for _, object := range objects {
		object.SetResourceVersion(c.next())
		must(c.storeOf(object).Update(object))
	}
}

// next returns the next resource version.
func (c *cluster) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	return strconv.Itoa(c.version)
}

// count counts a request that writes.
func (c *cluster) count(operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes[operation]++
}

func (c *cluster) drop(object client.Object) { must(c.storeOf(object).Delete(object)) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Get implements client.Reader.
func (c *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	found, exists, err := c.storeOf(object).GetByKey(strings.TrimPrefix(key.String(), "/"))
	if err == nil && !exists {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(object).String()}, key.String())
	}
	if err == nil {
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(found).Elem())
		c.noteRead(object)
	}
	return err
}

func (c *cluster) noteRead(what any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.onRead != nil {
		c.onRead(what)
	}
}

// List implements client.Reader.
func (c *cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	selection := (&client.ListOptions{}).ApplyOptions(options)
	store := c.store(reflect.TypeOf(list).Elem().Field(2).Type.Elem())
	var found []any
	var err error
	switch {
	case selection.FieldSelector != nil:
		node, _ := selection.FieldSelector.RequiresExactMatch(observe.PodNodeField)
		found, err = store.ByIndex(byNode, nodeKey(selection.Namespace, node))
	case selection.Namespace != "":
		found, err = store.ByIndex(toolscache.NamespaceIndex, selection.Namespace)
	default:
		found = store.List()
	}
	if err != nil {
		return err
	}
	objects := make([]runtime.Object, 0, len(found))
	for _, object := range found {
		objects = append(objects, as[runtime.Object](object))
	}
	if err := meta.SetList(list, objects); err != nil {
		return err
	}
	c.noteRead(list)
	return nil
}

// Create implements client.Writer. Only Events are created, and none are read.
func (c *cluster) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	c.count(fmt.Sprintf("create %T", object))
	return nil
}

// Apply implements client.Writer. The cache has what the fake client does not set: UID, generation and status.
func (c *cluster) Apply(ctx context.Context, intent runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	c.count("apply")
	if err := c.Client.Apply(ctx, intent, options...); err != nil {
		return err
	}
	applied := as[interface {
		client.Object
		UnstructuredContent() map[string]any
	}](intent)
	created, err := c.Scheme().New(applied.GetObjectKind().GroupVersionKind())
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.UnstructuredContent(), created); err != nil {
		return err
	}
	object := as[client.Object](created)
	object.SetUID(types.UID("uid-" + object.GetName()))
	object.SetManagedFields(nil)
	object.SetGeneration(1)
	return c.storeOf(object).Update(object)
}

// Delete implements client.Writer.
func (c *cluster) Delete(ctx context.Context, object client.Object, _ ...client.DeleteOption) error {
	c.count("delete")
	c.drop(object)
	return client.IgnoreNotFound(c.Client.Delete(ctx, object))
}

// Patch implements client.Writer. Only Nodes are patched, and the finalizers of a ClusterPolicy, which has the change
// already.
func (c *cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	c.count("patch")
	if policy, is := object.(*v1.ClusterPolicy); is {
		policy.ResourceVersion = c.next()
		return c.storeOf(policy).Update(policy.DeepCopy())
	}
	before := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), before); err != nil {
		return err
	}
	change, err := patch.Data(object)
	if err != nil {
		return err
	}
	// As a response, the result shares no memory with the cache.
	now, err := json.Marshal(before)
	if err != nil {
		return err
	}
	changed, err := strategicpatch.StrategicMergePatch(now, change, corev1.Node{})
	if err != nil {
		return err
	}
	after := as[*corev1.Node](object)
	*after = corev1.Node{}
	if err := json.Unmarshal(changed, after); err != nil {
		return err
	}
	after.ResourceVersion = c.next()
	trimmed, err := cachefilter.TrimNode(after.DeepCopy())
	if err != nil {
		return err
	}
	return c.storeOf(after).Update(trimmed)
}

// Status implements client.StatusClient.
func (c *cluster) Status() client.SubResourceWriter { return statusWriter{c.Client.Status(), c} }

type statusWriter struct {
	client.SubResourceWriter
	cluster *cluster
}

func (w statusWriter) Patch(
	ctx context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	return w.cluster.Patch(ctx, object, patch)
}

// Update implements client.SubResourceWriter. Only a ClusterPolicy is updated.
func (w statusWriter) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	w.cluster.count("status")
	w.cluster.put(as[client.Object](object.DeepCopyObject()))
	return nil
}

// live is the reader without a cache. It adds the ClusterPolicy CRD to what the cluster has.
type live struct{ client.Reader }

func (l live) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if definition, is := object.(*unstructured.Unstructured); is && key.Name == crd.Name {
		return yaml.Unmarshal(crd.ClusterPolicy, &definition.Object)
	}
	return l.Reader.Get(ctx, key, object, options...)
}

// references is the cache of the objects that policies refer to.
type references struct {
	cache.Cache
	reader client.Reader
}

func (r references) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	return r.reader.Get(ctx, key, object, options...)
}

// policy stores a policy in the cache.
func (c *cluster) policy(spec v1.ClusterPolicySpec) *v1.ClusterPolicy {
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-policy", UID: "policy", Generation: 1}, Spec: spec,
	}
	c.put(policy)
	return policy
}
