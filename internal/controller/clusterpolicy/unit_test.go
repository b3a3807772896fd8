package clusterpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// unitEnv is a Reconciler on a fake API server, for tests of passes and their phases that need no control plane.
type unitEnv struct {
	*WithT
	*callRecorder
	*Reconciler
	t     *testing.T
	clock *clocktesting.FakeClock
	// mu guards logged, as objects are applied concurrently.
	mu     sync.Mutex
	logged []string
}

// newUnit returns a unitEnv with an empty fleet. The cluster has the CRD of this release and these objects.
func newUnit(t *testing.T, objects ...client.Object) *unitEnv {
	t.Helper()
	all := cluster.Scheme()
	must(errors.Join(apiextensionsv1.AddToScheme(all), monitoringv1.AddToScheme(all)))
	server := fake.NewClientBuilder().WithScheme(all).WithReturnManagedFields().
		WithObjects(append(objects, crdWithout("7", ""))...).
		WithStatusSubresource(&v1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}).Build()
	u := &unitEnv{
		WithT: NewWithT(t), callRecorder: &callRecorder{server: server},
		t: t, clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)),
	}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(v1alpha1.NVIDIADriverKind, meta.RESTScopeRoot)
	for _, kind := range manifest.OptionalKinds() {
		kinds.Add(kind.Object.GetObjectKind().GroupVersionKind(), meta.RESTScopeNamespace)
	}
	mapper := &restMapper{RESTMapper: kinds, calls: u.callRecorder}
	watched := &recordingCache{&clientCache{reader: server}, u.callRecorder, "kind"}
	options := u.options(false, u.clock, fleet.New())
	options.DriverToolkit = observe.NewDriverToolkit(watched, mapper, u.clock)
	options.OpenShift = observe.NewOpenShift(watched, watched, mapper, u.clock)
	options.OptionalKinds = NewOptionalKinds(watched, mapper, u.clock)
	options.NVIDIADrivers = observe.NewNVIDIADrivers(watched, mapper, u.clock, options.DriverStatus.Wrote)
	options.References = &recordingCache{watched.Cache, u.callRecorder, "reference"}
	u.Reconciler = New(options)
	background := log.IntoContext(t.Context(), logr.Discard())
	for _, watch := range append(u.OpenShift.Watches(), u.DriverToolkit.Watch, u.NVIDIADrivers.Watch) {
		go func() { _ = watch.Start(background) }()
	}
	go func() { _ = u.OptionalKinds.Start(background) }()
	return u
}

// context returns the context of a pass, whose log is kept.
func (u *unitEnv) context() context.Context {
	return log.IntoContext(u.t.Context(), funcr.New(func(_, line string) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.logged = append(u.logged, line)
	}, funcr.Options{}))
}

// hydrate adds these nodes to the fleet, not assessed yet.
func (u *unitEnv) hydrate(nodes ...*corev1.Node) {
	var entries []*fleet.Entry
	for _, node := range nodes {
		entries = append(entries, &fleet.Entry{Facts: observe.Facts(node)})
	}
	u.Fleet.Hydrate(entries)
}

// scope returns the scope of a pass for the policy of policyOf.
func (u *unitEnv) scope() *scope {
	s := u.newScope()
	s.policy, s.view = policyOf(v1.ClusterPolicySpec{}, 1), u.Fleet.View()
	s.all = []v1.ClusterPolicy{*s.policy}
	return s
}

// get reads an object of the cluster, by the namespace and the name that it has.
func (u *unitEnv) get(object client.Object) error {
	return u.server.Get(u.context(), client.ObjectKeyFromObject(object), object)
}

// events returns the Events, as "type reason: message".
func (u *unitEnv) events() []string {
	list := &corev1.EventList{}
	u.Expect(u.server.List(u.context(), list)).To(Succeed())
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Type+" "+list.Items[i].Reason+": "+list.Items[i].Message)
	}
	return found
}

// metrics returns the values of the operator's metrics, by name without its prefix and labels in their order.
func (u *unitEnv) metrics() map[string]float64 {
	registry := prometheus.NewRegistry()
	u.Expect(registry.Register(u.Meter)).To(Succeed())
	families, err := registry.Gather()
	u.Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		for _, sample := range family.Metric {
			name := strings.TrimPrefix(family.GetName(), "gpu_operator_")
			for _, label := range sample.Label {
				name += " " + label.GetValue()
			}
			found[name] = sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
		}
	}
	return found
}

// clientCache is a cache that reads from a client. Its informers have no events.
type clientCache struct {
	cache.Cache
	reader client.Reader
}

func (c *clientCache) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	return c.reader.Get(ctx, key, object, options...)
}

func (c *clientCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, list, options...)
}

func (c *clientCache) GetInformer(
	context.Context, client.Object, ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer := controllertest.NewFakeInformer()
	informer.Synced()
	return informer, nil
}

func (c *clientCache) RemoveInformer(context.Context, client.Object) error { return nil }

// operandNamed returns an operand of the catalogue.
func operandNamed(name operand.Name) operand.Operand {
	all := allOperands()
	return all[slices.IndexFunc(all, func(o operand.Operand) bool { return o.Name == name })]
}

// namespaced returns the metadata of an object in the operator's namespace.
func namespaced(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// pass runs a pass, and returns when the next one is due.
func (u *unitEnv) pass() (time.Duration, error) {
	result, err := u.Reconcile(u.context(), clusterRequest)
	return result.RequeueAfter, err
}
