package clusterpolicy

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// clusterDefinition is that of this release without a block of the spec or, where that begins with status, of the status.
func clusterDefinition(version, without string) *unstructured.Unstructured {
	found := &unstructured.Unstructured{}
	must(yaml.Unmarshal(crd.ClusterPolicy, &found.Object))
	versions, _, err := unstructured.NestedSlice(found.Object, "spec", "versions")
	must(err)
	block := "spec"
	if without == "pools" {
		block = "status"
	}
	newest, isMap := versions[0].(map[string]any)
	if !isMap {
		panic("a version that is no map")
	}
	unstructured.RemoveNestedField(newest, "schema", "openAPIV3Schema", "properties", block, "properties", without)
	must(unstructured.SetNestedSlice(found.Object, versions, "spec", "versions"))
	found.SetResourceVersion(version)
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// mirrored has a field that a definition may lack, and truncated is the same as it is read then.
func mirrored() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}, Driver: &v1.DriverSpec{Enabled: new(true)}}
}

func truncated() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(true)}}
}

const policyUID types.UID = "policy"

func policyOf(spec v1.ClusterPolicySpec, generation int64) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: policyUID, Generation: generation}, Spec: spec}
}

// recordOf is the Service that records a spec of the first generation as the last applied one, of the policy with this UID;
// empty for none.
func recordOf(spec v1.ClusterPolicySpec, owner types.UID) *corev1.Service {
	applied, err := observe.AppliedOf(policyOf(spec, 1))
	must(err)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "gpu-operator", Annotations: map[string]string{labels.AppliedSpec: applied.String()},
	}}
	if owner != "" {
		service.OwnerReferences = []metav1.OwnerReference{{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "policy", UID: owner, Controller: new(true)}}
	}
	return service
}

// TestOnlyASpecThatIsSurelyWholeIsApplied: by what the cache shows, what the API server says, and what is recorded.
func TestOnlyASpecThatIsSurelyWholeIsApplied(t *testing.T) {
	whole, old := "", "global"
	paused := truncated()
	paused.Paused = new(true)
	tests := map[string]struct {
		// cached and live are the policy, nil for none; the definitions are named by what they lack.
		cached, live         *v1.ClusterPolicy
		cachedLacks, lacks   string
		recorded             *corev1.Service
		fails                error
		want, wantErr, calls bool
		spec                 v1.ClusterPolicySpec
		dropped              []string
	}{
		"it was applied": {
			cached: policyOf(mirrored(), 1), recorded: recordOf(mirrored(), policyUID), want: true, spec: mirrored(),
		},
		"nothing was applied yet": {
			cached: policyOf(mirrored(), 1), live: policyOf(mirrored(), 1), want: true, calls: true, spec: mirrored(),
		},
		"it was edited": {
			cached: policyOf(truncated(), 2), live: policyOf(truncated(), 2), recorded: recordOf(mirrored(), policyUID),
			want: true, calls: true, spec: truncated(),
		},
		"the definition lacks what it has never had": {
			cached: policyOf(truncated(), 1), cachedLacks: old, lacks: old, recorded: recordOf(truncated(), policyUID),
			want: true, spec: truncated(),
		},
		"the definition lacks what it has, as it was read before": {
			cached: policyOf(mirrored(), 1), cachedLacks: old, lacks: old, recorded: recordOf(mirrored(), policyUID),
			spec: mirrored(), dropped: []string{"spec.global"},
		},
		"the definition lacks what it had": {
			cached: policyOf(truncated(), 1), cachedLacks: old, lacks: old, recorded: recordOf(mirrored(), policyUID), spec: truncated(),
		},
		"the definition lacks fields, and nothing is recorded": {
			cached: policyOf(truncated(), 1), cachedLacks: old, lacks: old, spec: truncated(),
		},
		"the definition lacks fields, and it was edited": {
			cached: policyOf(paused, 2), cachedLacks: old, lacks: old, recorded: recordOf(truncated(), policyUID), spec: paused,
		},
		"the definition lacks fields of the status alone": {
			cached: policyOf(truncated(), 2), live: policyOf(truncated(), 2), cachedLacks: "pools", lacks: "pools",
			recorded: recordOf(mirrored(), policyUID), want: true, calls: true, spec: truncated(),
		},
		"the cache does not show yet that the definition lacks fields": {
			cached: policyOf(truncated(), 2), live: policyOf(truncated(), 2), cachedLacks: whole, lacks: old,
			recorded: recordOf(mirrored(), policyUID), calls: true, spec: truncated(),
		},
		"the definition is renewed, and the cache has what was read before": {
			cached: policyOf(truncated(), 1), live: policyOf(mirrored(), 1), recorded: recordOf(mirrored(), policyUID),
			want: true, calls: true, spec: mirrored(),
		},
		"it differs without an edit": {
			cached: policyOf(truncated(), 1), live: policyOf(truncated(), 1), recorded: recordOf(mirrored(), policyUID), calls: true, spec: truncated(),
		},
		"it is of a policy that adopts the objects of another": {
			cached: policyOf(truncated(), 1), live: policyOf(truncated(), 1), recorded: recordOf(mirrored(), ""),
			want: true, calls: true, spec: truncated(),
		},
		"it is of a policy beside the objects of another": {
			cached: policyOf(truncated(), 1), cachedLacks: old, lacks: old, recorded: recordOf(truncated(), "another"), spec: truncated(),
		},
		"it is paused": {
			cached: policyOf(paused, 2), recorded: recordOf(truncated(), policyUID), want: true, spec: paused,
		},
		"the policy is gone": {cached: policyOf(mirrored(), 2), calls: true, spec: mirrored()},
		"the definition cannot be read": {
			cached: policyOf(mirrored(), 2), live: policyOf(mirrored(), 2), fails: errors.New("no answer"), wantErr: true, calls: true, spec: mirrored(),
		},
		"the definition may not be read": {
			cached: policyOf(mirrored(), 2), live: policyOf(mirrored(), 2), want: true, calls: true, spec: mirrored(),
			fails: apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, crd.Name, nil),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			version := map[bool]string{true: "7", false: "8"}[test.cachedLacks == test.lacks]
			cached := fakeCluster(clusterDefinition("7", test.cachedLacks), test.recorded, test.cached)
			calls := 0
			live := interceptor.NewClient(fakeCluster(clusterDefinition(version, test.lacks), nil, test.live), interceptor.Funcs{
				List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					calls++
					return next.List(ctx, list, options...)
				},
			})
			reader := &failing{Reader: cached}
			r := New(Options{
				Client: cached, Live: live, Namespace: namespace, Schema: &observe.Schema{Cached: cached, Live: reader},
				Clock: clocktesting.NewFakePassiveClock(time.Now()), Timing: DefaultTiming(),
			})
			s := r.newScope()
			var err error
			s.policy, s.all, err = observe.Policies(t.Context(), cached)
			g.Expect(err).NotTo(HaveOccurred())
			s.observeDefinitions(t.Context())
			reader.Reader, reader.err = live, test.fails
			got, err := s.isWhole(t.Context())
			g.Expect(err != nil).To(Equal(test.wantErr), "%v", err)
			g.Expect(got).To(Equal(test.want))
			g.Expect(s.policy.Spec).To(Equal(test.spec))
			g.Expect(calls).To(Equal(map[bool]int{true: 1}[test.calls]), "lists")
			g.Expect(s.dropped).To(Equal(test.dropped))
		})
	}
}

// A spec that differs without an edit is applied once it has lasted: somebody has written it while the definition lacked
// fields.
func TestASpecThatHasLostFieldsForGoodIsAppliedAfterAWhile(t *testing.T) {
	g := NewWithT(t)
	c := fakeCluster(clusterDefinition("7", ""), recordOf(mirrored(), policyUID), policyOf(truncated(), 1))
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := New(Options{
		Client: c, Live: c, Namespace: namespace, Schema: &observe.Schema{Cached: c, Live: c}, Clock: clock, Timing: DefaultTiming(),
	})
	pass := func() (bool, time.Duration) {
		s := r.newScope()
		var err error
		s.policy, s.all, err = observe.Policies(t.Context(), c)
		g.Expect(err).NotTo(HaveOccurred())
		got, err := s.isWhole(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		if got {
			s.thaw(t.Context())
		}
		return got, s.wait
	}
	whole, wait := pass()
	g.Expect(whole).To(BeFalse())
	g.Expect(wait).To(Equal(r.Timing.Doubt))
	clock.SetTime(clock.Now().Add(wait - time.Second))
	whole, wait = pass()
	g.Expect(whole).To(BeFalse())
	g.Expect(wait).To(Equal(time.Second))
	clock.SetTime(clock.Now().Add(wait))
	for range 2 {
		// Also before the cache shows the record of it.
		whole, _ = pass()
		g.Expect(whole).To(BeTrue())
	}
}

// fakeCluster has the definition, and of the others those that are not nil.
func fakeCluster(definition *unstructured.Unstructured, recorded *corev1.Service, policy *v1.ClusterPolicy) client.WithWatch {
	all := runtime.NewScheme()
	must(errors.Join(v1.AddToScheme(all), corev1.AddToScheme(all), apiextensionsv1.AddToScheme(all)))
	builder := fake.NewClientBuilder().WithScheme(all).WithObjects(definition)
	if recorded != nil {
		builder = builder.WithObjects(recorded.DeepCopy())
	}
	if policy != nil {
		builder = builder.WithObjects(policy.DeepCopy())
	}
	return builder.Build()
}

// failing fails all reads of single objects while it has an error.
type failing struct {
	client.Reader
	err error
}

func (f *failing) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if f.err != nil {
		return f.err
	}
	return f.Reader.Get(ctx, key, object, options...)
}

var _ = Describe("A definition that is older than the operator", Ordered, func() {
	definition := func(ctx context.Context) *unstructured.Unstructured {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		Expect(admin.Get(ctx, client.ObjectKey{Name: crd.Name}, found)).To(Succeed())
		return found
	}
	outdate := func(ctx context.Context, block string) {
		Expect(admin.Patch(ctx, definition(ctx), client.RawPatch(types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/`+block+`"},
				{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"}]`)))).To(Succeed())
	}
	renew := func(ctx context.Context) {
		Expect(admin.Patch(ctx, definition(ctx), client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
			client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	}
	AfterEach(func(ctx SpecContext) { renew(ctx) })

	It("has no other policy written than the one that is surely whole", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{})
		b.create(ctx, "second", v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}})
		b.settle(ctx)
		second := named(ctx, "second")
		second.Status = v1.ClusterPolicyStatus{}
		Expect(admin.Status().Update(ctx, second)).To(Succeed())
		outdate(ctx, "global")
		b.pass(ctx, longer)
		Expect(b.writes()).To(ConsistOf("update status ClusterPolicy policy"))
		Expect(meta.FindStatusCondition(b.policy(ctx).Status.Conditions, v1.ConditionCRDOutdated)).NotTo(BeNil())

		renew(ctx)
		b.settle(ctx)
		Expect(named(ctx, "second").Spec.Global).To(HaveField("Registry", "mirror.example.com"))
		Expect(named(ctx, "second").Status.State).To(Equal(v1.StateIgnored))
	})

	It("is told once, with what is lost, and has nothing be repaired", func(ctx SpecContext) {
		b := newBed(gpuNode("a"))
		b.create(ctx, "policy", v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}})
		b.settle(ctx)
		basis, before := b.fleet.Basis(), b.policy(ctx)
		outdate(ctx, "global")
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		for range 3 {
			b.pass(ctx, longer)
		}
		Expect(b.writes()).To(ConsistOf(HavePrefix("create Event policy.")))
		Expect(b.policy(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(b.fleet.Basis().Decisions).To(BeIdenticalTo(basis.Decisions), "what was decided last")

		b.reconciler = New(b.reconciler.Options)
		forgetSchema(ctx, b)
		b.pass(ctx, longer)
		var told []corev1.Event
		list := &corev1.EventList{}
		Expect(admin.List(ctx, list, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
		for _, event := range list.Items {
			if event.InvolvedObject.UID == before.UID {
				told = append(told, event)
			}
		}
		Expect(told).To(ConsistOf(And(HaveField("Reason", v1.ConditionCRDOutdated), HaveField("Type", corev1.EventTypeWarning),
			HaveField("Message", And(ContainSubstring("does not have spec.global"),
				// The API server may serve the policy whole for a moment yet.
				Or(ContainSubstring("fields may have been dropped"), ContainSubstring("the next write drops them")))))), "also after a start")

		renew(ctx)
		b.pass(ctx, longer)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
		Expect(b.policy(ctx).Spec.Global).To(HaveField("Registry", "mirror.example.com"))
	})
})
