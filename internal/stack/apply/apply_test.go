package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

const policy types.UID = "policy"

func configMap(name string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	object := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "gpu-operator",
			Labels: map[string]string{
				"app.kubernetes.io/managed-by":    "gpu-operator",
				"nvidia.com/gpu-operator.operand": "driver",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "cp", UID: policy, Controller: new(true)},
			},
		},
		Data: map[string]string{"key": "value"},
	}
	for _, c := range change {
		c(object)
	}
	return object
}

func ownedBy(uid types.UID) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = uid }
}

func ofOperand(name string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Labels["nvidia.com/gpu-operator.operand"] = name }
}

// cluster is a fake API server that records calls, with a cache that is always current.
type cluster struct {
	client.WithWatch
	failWith error
	// answered may change the answer to a write.
	answered func(o *unstructured.Unstructured)

	mu               sync.Mutex
	before           webhook
	applied, deleted []string
}

// webhook is called before each write, and may delay, reject or mutate it.
type webhook func(ctx context.Context, o *unstructured.Unstructured) error

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	c.WithWatch = fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			// As the cache of controller-runtime does.
			Get: func(
				ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
			) error {
				err := w.Get(ctx, key, o, options...)
				if err == nil {
					o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
				}
				return err
			},
			Apply: c.apply,
			Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				deleteOptions := (&client.DeleteOptions{}).ApplyOptions(options)
				uid := "any"
				if deleteOptions.Preconditions != nil && deleteOptions.Preconditions.UID != nil {
					uid = string(*deleteOptions.Preconditions.UID)
				}
				c.record(&c.deleted, o.GetName()+" with UID "+uid)
				request := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": o.GetName()}}}
				if err := c.hook(ctx, request); err != nil {
					return err
				}
				return w.Delete(ctx, o, options...)
			},
		}).
		Build()
	return c
}

func (c *cluster) apply(
	ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption,
) error {
	content, isObject := o.(runtime.Unstructured)
	if !isObject {
		return fmt.Errorf("%T is not unstructured", o)
	}
	request := &unstructured.Unstructured{Object: content.UnstructuredContent()}
	c.record(&c.applied, request.GetName())
	if err := c.hook(ctx, request); err != nil {
		return err
	}
	if err := w.Apply(ctx, o, options...); err != nil {
		return err
	}
	if c.answered != nil {
		c.answered(&unstructured.Unstructured{Object: content.UnstructuredContent()})
	}
	return nil
}

func (c *cluster) hook(ctx context.Context, o *unstructured.Unstructured) error {
	c.mu.Lock()
	before := c.before
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx, o); err != nil {
			return err
		}
	}
	return c.failWith
}

// admit installs the webhook.
func (c *cluster) admit(before webhook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

func (c *cluster) record(calls *[]string, call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*calls = append(*calls, call)
}

// writes returns the names of the applied objects, one for each write.
func (c *cluster) writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.applied)
}

func (c *cluster) deletions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.deleted)
}

func (c *cluster) applier() *Applier { return New(c, c, clock.RealClock{}, DefaultTiming()) }

// applyOne is a round of one object.
func applyOne(a *Applier, intent client.Object) (bool, error) {
	result := a.ApplyAll(context.Background(), policy, []client.Object{intent})[0]
	return result.Wrote, result.Err
}

func (c *cluster) get(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestApplyWritesOnce(t *testing.T) {
	c := newCluster(t)
	applier := c.applier()
	for i, want := range []bool{true, false, false} {
		wrote, err := applyOne(applier, configMap("a"))
		if err != nil || wrote != want {
			t.Fatalf("round %d: wrote %v, %v", i, wrote, err)
		}
	}
	// A restarted operator has no state and still writes nothing.
	if wrote, err := applyOne(c.applier(), configMap("a")); err != nil || wrote {
		t.Errorf("after a restart: wrote %v, %v", wrote, err)
	}
	if len(c.applied) != 1 {
		t.Errorf("%d writes", len(c.applied))
	}
}

func TestApplyRepairsDriftAndFollowsTheIntent(t *testing.T) {
	tests := map[string]struct {
		drift  func(*corev1.ConfigMap)
		intent func(*corev1.ConfigMap)
		want   bool
	}{
		"nothing has changed":  {},
		"others added a label": {drift: func(c *corev1.ConfigMap) { c.Labels["theirs"] = "x" }},
		"others added a key":   {drift: func(c *corev1.ConfigMap) { c.Data["theirs"] = "x" }},
		"others changed our key": {
			drift: func(c *corev1.ConfigMap) { c.Data["key"] = "x" },
			want:  true,
		},
		"others removed our key": {drift: func(c *corev1.ConfigMap) { c.Data = nil }, want: true},
		"others removed our label": {
			drift: func(c *corev1.ConfigMap) { delete(c.Labels, "nvidia.com/gpu-operator.operand") },
			want:  true,
		},
		"others removed the digest": {
			drift: func(c *corev1.ConfigMap) { c.Annotations = nil },
			want:  true,
		},
		"the intent has another value": {
			intent: func(c *corev1.ConfigMap) { c.Data["key"] = "new" },
			want:   true,
		},
		"the intent no longer has a key": {intent: func(c *corev1.ConfigMap) { c.Data = nil }, want: true},
		"the intent has one more key": {
			intent: func(c *corev1.ConfigMap) { c.Data["more"] = "x" },
			want:   true,
		},
		"the intent is equal to the live object": {
			drift:  func(c *corev1.ConfigMap) { c.Data["more"] = "x" },
			intent: func(c *corev1.ConfigMap) { c.Data["more"] = "x" },
			want:   true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			if _, err := applyOne(c.applier(), configMap("a")); err != nil {
				t.Fatal(err)
			}
			if test.drift != nil {
				live := c.get(t, "a")
				test.drift(live)
				if err := c.Update(context.Background(), live); err != nil {
					t.Fatal(err)
				}
			}
			intent := configMap("a")
			if test.intent != nil {
				test.intent(intent)
			}
			wrote, err := applyOne(c.applier(), intent)
			if err != nil || wrote != test.want {
				t.Fatalf("wrote %v, %v", wrote, err)
			}
			if again, err := applyOne(c.applier(), intent); err != nil || again {
				t.Errorf("wrote %v once more, %v", again, err)
			}
			live := c.get(t, "a")
			for key, value := range intent.Data {
				if live.Data[key] != value {
					t.Errorf("%s is %q, want %q", key, live.Data[key], value)
				}
			}
		})
	}
}

// Differs reports what ApplyAll would do, and writes nothing.
func TestDiffers(t *testing.T) {
	tests := map[string]struct {
		live *corev1.ConfigMap
		want bool
		err  error
	}{
		"it does not exist": {want: true},
		"it is equal":       {live: applied(t, configMap("a"))},
		"it has another value": {
			live: applied(t, configMap("a", func(c *corev1.ConfigMap) { c.Data["key"] = "x" })),
			want: true,
		},
		"it has another owner": {
			live: configMap("a", func(c *corev1.ConfigMap) { c.OwnerReferences, c.Labels, c.UID = nil, nil, "live" }),
			err:  ErrConflict,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			if test.live != nil {
				c = newCluster(t, test.live)
			}
			differs, err := c.applier().Differs(context.Background(), policy, configMap("a"))
			if differs != test.want || !errors.Is(err, test.err) {
				t.Errorf("it differs: %v, error %v", differs, err)
			}
			if len(c.applied) != 0 {
				t.Error("it was written")
			}
		})
	}
}

// Differs reads the API server only for what the cache does not have, and no longer than a round.
func TestDiffersReadsTheServerOnACacheMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		empty, cached := newCluster(t), newCluster(t, applied(t, configMap("a")))
		hanging := &slowReader{Reader: empty, wait: time.Hour}
		differs, err := New(cached, hanging, clock.RealClock{}, DefaultTiming()).Differs(t.Context(), policy, configMap("a"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(differs).To(BeFalse())
		g.Expect(elapsed(func() {
			differs, err = New(empty, hanging, clock.RealClock{}, DefaultTiming()).Differs(t.Context(), policy, configMap("a"))
		})).To(Equal(1500 * time.Millisecond))
		g.Expect(err).To(MatchError("reading ConfigMap a: context deadline exceeded"))
		g.Expect(differs).To(BeFalse())
	})
}

// applied returns the object as it is stored after it was applied.
func applied(t *testing.T, intent *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	c := newCluster(t)
	if _, err := applyOne(c.applier(), intent); err != nil {
		t.Fatal(err)
	}
	live := c.get(t, intent.Name)
	live.ResourceVersion = ""
	return live
}

func TestApplyLeavesObjectsOfOthers(t *testing.T) {
	foreign := func(c *corev1.ConfigMap) { c.OwnerReferences, c.Labels, c.UID = nil, nil, "live" }
	tests := map[string]struct {
		live     *corev1.ConfigMap
		conflict bool
		want     string
	}{
		"made by hand": {
			live: configMap("a", foreign), conflict: true,
			want: "ConfigMap a exists and is not controlled by this ClusterPolicy: delete it, or uninstall what created it",
		},
		"owned by another controller": {
			live: configMap("a", ownedBy("other"), func(c *corev1.ConfigMap) { c.Labels = nil }), conflict: true,
			want: "ConfigMap a exists and is not controlled by this ClusterPolicy: delete it, or uninstall what created it",
		},
		"of a deleted policy": {
			live: configMap(
				"a", ownedBy("older"), func(c *corev1.ConfigMap) { c.Annotations = map[string]string{labels.Digest: "d"} },
			),
			want: "ConfigMap a is still being deleted with an earlier ClusterPolicy, and is created again after that: " +
				"if this lasts, check its metadata.finalizers and that kube-controller-manager runs",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, test.live)
			wrote, err := applyOne(c.applier(), configMap("a"))
			if wrote || err == nil || err.Error() != test.want || errors.Is(err, ErrConflict) != test.conflict {
				t.Errorf("wrote %v, error %v, want %q", wrote, err, test.want)
			}
			if len(c.applied) != 0 {
				t.Error("the object was written")
			}
		})
	}
}

// The cache has only objects with the operator's label: others may exist.
func TestApplyReadsTheServerOnACacheMiss(t *testing.T) {
	server := newCluster(t, configMap("a", func(c *corev1.ConfigMap) { c.OwnerReferences, c.Labels = nil, nil }))
	cache := newCluster(t)
	applier := New(cache, server, clock.RealClock{}, DefaultTiming())
	if _, err := applyOne(applier, configMap("a")); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if len(cache.applied)+len(server.applied) != 0 {
		t.Error("the object was written")
	}
}

// A stale copy causes no second write.
func TestApplyIgnoresAStaleCache(t *testing.T) {
	server, cache := newCluster(t), newCluster(t)
	applier := server.applier()
	if _, err := applyOne(applier, configMap("a")); err != nil {
		t.Fatal(err)
	}
	old := server.get(t, "a")
	intent := configMap("a", func(c *corev1.ConfigMap) { c.Data["key"] = "new" })
	if _, err := applyOne(applier, intent); err != nil {
		t.Fatal(err)
	}
	// From now on the cache returns the copy from before the second write.
	old.ResourceVersion = ""
	if err := cache.Create(context.Background(), old); err != nil {
		t.Fatal(err)
	}
	applier.client = cache
	applier.table.records[key(intent)].writtenVersion = "1000"
	wrote, err := applyOne(applier, intent)
	if err != nil || !wrote || len(cache.applied) != 0 {
		t.Errorf("wrote %v, %v, %d calls: a recent write is not repeated", wrote, err, len(cache.applied))
	}
	if differs, err := applier.Differs(t.Context(), policy, intent); differs || err != nil {
		t.Errorf("it differs: %v, %v", differs, err)
	}
}

func TestApplyReportsAFailedCall(t *testing.T) {
	c := newCluster(t)
	c.failWith = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no"))
	wrote, err := applyOne(c.applier(), configMap("a"))
	if wrote || !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "applying ConfigMap a: ") {
		t.Errorf("wrote %v, %v", wrote, err)
	}
	err = c.applier().Delete(t.Context(), configMap("a"))
	if err == nil || !strings.HasPrefix(err.Error(), "deleting ConfigMap a: ") {
		t.Errorf("a failed deletion: %v", err)
	}
}

func prune(t *testing.T, c *cluster, rendered Rendered) error {
	t.Helper()
	return c.applier().Prune(context.Background(), policy, []client.Object{configMap("kind")}, rendered)
}

func TestPrune(t *testing.T) {
	uid := func(c *corev1.ConfigMap) { c.UID = types.UID("uid-" + c.Name) }
	c := newCluster(
		t,
		configMap("wanted", uid),
		configMap("unwanted", uid),
		configMap("held", uid, ofOperand("device-plugin")),
		configMap("of-another-policy", uid, ownedBy("other")),
		configMap("without-owner", uid, func(c *corev1.ConfigMap) { c.OwnerReferences = nil }),
		configMap("not-controlled", uid, func(c *corev1.ConfigMap) { c.OwnerReferences[0].Controller = nil }),
		configMap("without-label", uid, func(c *corev1.ConfigMap) { delete(c.Labels, "nvidia.com/gpu-operator.operand") }),
		configMap("empty-label", uid, ofOperand("")),
		configMap("leaving", uid, func(c *corev1.ConfigMap) {
			c.DeletionTimestamp, c.Finalizers = new(metav1.Now()), []string{"x/y"}
		}),
	)
	rendered := Rendered{Kept: map[string]bool{"device-plugin": true}}
	rendered.Add(configMap("wanted"))
	if err := prune(t, c, rendered); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"unwanted with UID uid-unwanted"}, c.deleted); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := prune(t, c, rendered); err != nil || len(c.deleted) != 1 {
		t.Errorf("the second time: deleted %v, %v", c.deleted, err)
	}
}

func TestPruneContinuesAfterAFailure(t *testing.T) {
	c := newCluster(t, configMap("a"), configMap("b"))
	c.failWith = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no"))
	err := prune(t, c, Rendered{})
	if err == nil || len(c.deleted) != 2 ||
		!strings.Contains(err.Error(), "deleting ConfigMap a") ||
		!strings.Contains(err.Error(), "deleting ConfigMap b") {
		t.Errorf("tried %v, %v", c.deleted, err)
	}
}

func TestPruneIgnoresNotFound(t *testing.T) {
	c := newCluster(t, configMap("a"))
	c.failWith = apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "a")
	if err := prune(t, c, Rendered{}); err != nil || len(c.deleted) != 1 {
		t.Errorf("tried %v, %v", c.deleted, err)
	}
}

// The digest covers the intent only: neither status nor empty metadata.
func TestDigestDependsOnTheIntentOnly(t *testing.T) {
	digestOf := func(object client.Object) string {
		intent, err := Intent(object)
		if err != nil {
			t.Fatal(err)
		}
		return intent.GetAnnotations()["nvidia.com/gpu-operator.digest"]
	}
	before := digestOf(configMap("a"))
	if before == "" || digestOf(configMap("a")) != before {
		t.Errorf("the digest is %q, or changes by itself", before)
	}
	if digestOf(configMap("a", func(c *corev1.ConfigMap) { c.Data["key"] = "new" })) == before {
		t.Error("the digest does not change with the intent")
	}
	if digestOf(configMap("a", ownedBy("other"))) != before {
		t.Error("the digest changes with the owner, which belongs to the cluster")
	}
	intent, err := Intent(daemonSet("a"))
	if err != nil {
		t.Fatal(err)
	}
	delete(intent.Object, "metadata")
	want := map[string]any{"spec": map[string]any{
		"selector": nil, "template": map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"containers": nil}},
		"updateStrategy": map[string]any{},
	}}
	if diff := cmp.Diff(want, intent.Object); diff != "" {
		t.Errorf("intent -want +got:\n%s", diff)
	}
}
