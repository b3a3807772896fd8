package apply

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	enforce = "pod-security.kubernetes.io/enforce"
	audit   = "pod-security.kubernetes.io/audit"
	warn    = "pod-security.kubernetes.io/warn"
)

// namespaceServer is a fake API server with the operator's namespace, which counts calls.
type namespaceServer struct {
	client.WithWatch
	reads, writes int
	refused       error
	// failed is the answer to writes.
	failed error
}

func newNamespaceServer(t *testing.T, labels map[string]string) *namespaceServer {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &namespaceServer{}
	o.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator", Labels: labels}}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(
				ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
			) error {
				o.reads++
				if o.refused != nil {
					return o.refused
				}
				return w.Get(ctx, key, object, options...)
			},
			Apply: func(
				ctx context.Context, w client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption,
			) error {
				o.writes++
				if o.failed != nil {
					return o.failed
				}
				return w.Apply(ctx, object, options...)
			},
			Patch: func(
				ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
			) error {
				o.writes++
				if o.failed != nil {
					return o.failed
				}
				return w.Patch(ctx, object, patch, options...)
			},
		}).Build()
	return o
}

func (o *namespaceServer) applier() *Applier { return New(o, o, clock.RealClock{}, DefaultTiming()) }

// live returns the namespace without counting the read.
func (o *namespaceServer) live(t *testing.T) *corev1.Namespace {
	t.Helper()
	reads := o.reads
	live := &corev1.Namespace{}
	if err := o.Get(t.Context(), client.ObjectKey{Name: "gpu-operator"}, live); err != nil {
		t.Fatal(err)
	}
	o.reads = reads
	return live
}

func (o *namespaceServer) labels(t *testing.T) map[string]string {
	t.Helper()
	return o.live(t).Labels
}

// edit is a change by an administrator; an empty value removes the label.
func (o *namespaceServer) edit(t *testing.T, key, value string) {
	t.Helper()
	live := o.live(t)
	live.Labels[key] = value
	if value == "" {
		delete(live.Labels, key)
	}
	if err := o.Update(t.Context(), live, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
}

// step is one pass, after an optional edit, and the expected state. restart starts a new Applier.
type step struct {
	privileged, restart bool
	key, value          string
	writes              int
	labels              map[string]string
}

func TestPodSecurityLabels(t *testing.T) {
	all := func(value string, more ...string) map[string]string {
		labels := map[string]string{enforce: value, audit: value, warn: value}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		return labels
	}
	for name, test := range map[string]struct {
		before map[string]string
		steps  []step
	}{
		"on, at rest, off": {map[string]string{"team": "ml"}, []step{
			{privileged: true, writes: 1, labels: all("privileged", "team", "ml")},
			{privileged: true, writes: 1, labels: all("privileged", "team", "ml")},
			{privileged: true, restart: true, writes: 1, labels: all("privileged", "team", "ml")},
			{writes: 2, labels: map[string]string{"team": "ml"}},
			{writes: 2, labels: map[string]string{"team": "ml"}},
			{restart: true, writes: 2, labels: map[string]string{"team": "ml"}},
			{privileged: true, writes: 3, labels: all("privileged", "team", "ml")},
			{restart: true, writes: 4, labels: map[string]string{"team": "ml"}},
		}},
		"another level is replaced": {all("restricted"), []step{{privileged: true, writes: 1, labels: all("privileged")}}},
		"the replaced levels are restored": {map[string]string{enforce: "baseline", warn: "restricted", "team": "ml"}, []step{
			{privileged: true, writes: 1, labels: all("privileged", "team", "ml")},
			{privileged: true, restart: true, writes: 1, labels: all("privileged", "team", "ml")},
			{restart: true, writes: 3, labels: map[string]string{enforce: "baseline", warn: "restricted", "team": "ml"}},
			{writes: 3, labels: map[string]string{enforce: "baseline", warn: "restricted", "team": "ml"}},
			{restart: true, writes: 3, labels: map[string]string{enforce: "baseline", warn: "restricted", "team": "ml"}},
			{privileged: true, writes: 4, labels: all("privileged", "team", "ml")},
			{writes: 6, labels: map[string]string{enforce: "baseline", warn: "restricted", "team": "ml"}},
		}},
		"a level that is set meanwhile is restored": {map[string]string{enforce: "baseline", warn: "baseline"}, []step{
			{privileged: true, writes: 1, labels: all("privileged")},
			{privileged: true, key: enforce, value: "restricted", writes: 2, labels: all("privileged")},
			{writes: 4, labels: map[string]string{enforce: "restricted", warn: "baseline"}},
		}},
		"a label that is removed meanwhile is not restored": {map[string]string{
			enforce: "baseline", warn: "baseline",
		}, []step{
			{privileged: true, writes: 1, labels: all("privileged")},
			{privileged: true, key: enforce, writes: 2, labels: all("privileged")},
			{writes: 4, labels: map[string]string{warn: "baseline"}},
		}},
		"a level that is changed at the end stays": {map[string]string{enforce: "baseline"}, []step{
			{privileged: true, writes: 1, labels: all("privileged")},
			{key: enforce, value: "restricted", writes: 2, labels: map[string]string{enforce: "restricted"}},
		}},
		"an administrator's privileged labels stay": {all("privileged"), []step{
			{privileged: true, labels: all("privileged")},
			{labels: all("privileged")},
		}},
		"an administrator's labels stay if the field is off": {all("baseline"), []step{{labels: all("baseline")}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newNamespaceServer(t, test.before)
			applier := o.applier()
			for i, step := range test.steps {
				if step.key != "" {
					o.edit(t, step.key, step.value)
				}
				if step.restart {
					applier = o.applier()
				}
				if err := applier.SetPodSecurity(t.Context(), "gpu-operator", step.privileged); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if diff := cmp.Diff(step.labels, o.labels(t)); diff != "" || o.writes != step.writes {
					t.Errorf("step %d: %d writes, want %d, labels -want +got:\n%s", i, o.writes, step.writes, diff)
				}
				if !step.privileged && len(o.live(t).Annotations) > 0 {
					t.Errorf("step %d: annotations %v", i, o.live(t).Annotations)
				}
			}
		})
	}
}

// If nothing is to be labelled, the namespace is read once, and need not be readable.
func TestNamespaceIsReadOnceWithoutPodSecurity(t *testing.T) {
	forbidden := apierrors.NewForbidden(
		schema.GroupResource{Resource: "namespaces"}, "gpu-operator", errors.New("no role"),
	)
	for name, refused := range map[string]error{"readable": nil, "forbidden": forbidden} {
		t.Run(name, func(t *testing.T) {
			o := newNamespaceServer(t, nil)
			o.refused = refused
			applier := o.applier()
			for range 3 {
				if err := applier.SetPodSecurity(t.Context(), "gpu-operator", false); err != nil {
					t.Error(err)
				}
			}
			if o.reads != 1 || o.writes != 0 {
				t.Errorf("%d reads and %d writes", o.reads, o.writes)
			}
			if err := applier.SetPodSecurity(t.Context(), "gpu-operator", true); !errors.Is(err, refused) {
				t.Errorf("privileged: %v", err)
			}
		})
	}
}

// A write that fails is repeated by the next pass.
func TestPodSecurityWriteFails(t *testing.T) {
	for name, before := range map[string]map[string]string{"replaced": {enforce: "baseline"}, "new": {"team": "ml"}} {
		t.Run(name, func(t *testing.T) {
			g, o := NewWithT(t), newNamespaceServer(t, before)
			applier := o.applier()
			for _, privileged := range []bool{true, false} {
				o.failed = errFailsOnce
				g.Expect(applier.SetPodSecurity(t.Context(), "gpu-operator", privileged)).To(MatchError(errFailsOnce))
				o.failed = nil
				g.Expect(applier.SetPodSecurity(t.Context(), "gpu-operator", privileged)).To(Succeed())
			}
			g.Expect(o.labels(t)).To(Equal(before))
		})
	}
}

// An API server that does not answer does not block a pass.
func TestPodSecurityHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		o := newNamespaceServer(t, nil)
		applier := New(o, &slowReader{Reader: o, wait: time.Hour}, clock.RealClock{}, DefaultTiming())
		g.Expect(elapsed(func() {
			g.Expect(applier.SetPodSecurity(t.Context(), "gpu-operator", true)).To(MatchError(context.DeadlineExceeded))
		})).To(Equal(3 * time.Second))
	})
}
