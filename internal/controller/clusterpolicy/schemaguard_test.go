package clusterpolicy

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
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
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// parsedCRD is the CRD of this release. To parse it takes longer than most tests.
var parsedCRD = sync.OnceValue(func() (found map[string]any) {
	must(yaml.Unmarshal(crd.ClusterPolicy, &found))
	return found
})

// crdWithout returns the CRD of this release without a field of the spec or, for pools, of the status.
func crdWithout(version, without string) *unstructured.Unstructured {
	found := &unstructured.Unstructured{Object: parsedCRD()}
	found = found.DeepCopy()
	versions, _, err := unstructured.NestedSlice(found.Object, "spec", "versions")
	must(err)
	block := "spec"
	if without == "pools" {
		block = "status"
	}
	newest, isMap := versions[0].(map[string]any)
	if !isMap {
		panic("a version is not a map")
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

// mirrorSpec has a field that the CRD may not define. truncatedSpec is how the API server returns it then.
func mirrorSpec() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{
		Global: &v1.GlobalSpec{Registry: "mirror.example.com"},
		Driver: &v1.DriverSpec{Enabled: new(true)},
	}
}

func truncatedSpec() v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(true)}}
}

const policyUID types.UID = "policy"

func policyOf(spec v1.ClusterPolicySpec, generation int64) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: policyUID, Generation: generation},
		Spec:       spec,
	}
}

// specRecord returns the Service that records a spec, of the first generation, as the last applied one. owner is the
// UID of the policy, empty for none.
func specRecord(spec v1.ClusterPolicySpec, owner types.UID) *corev1.Service {
	applied, err := observe.SpecIDOf(policyOf(spec, 1))
	must(err)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "gpu-operator", Annotations: map[string]string{labels.AppliedSpec: applied.String()},
	}}
	if owner != "" {
		service.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "policy", UID: owner, Controller: new(true)},
		}
	}
	return service
}

// The decision depends on the cache, the API server and the record of the last applied spec.
func TestOnlyACompleteSpecIsApplied(t *testing.T) {
	allFields, noGlobal := "", "global"
	paused := truncatedSpec()
	paused.Paused = new(true)
	tests := map[string]struct {
		// cached and live are the policy, nil for none. cachedMissing and liveMissing are fields that the CRD does not
		// have.
		cached, live               *v1.ClusterPolicy
		cachedMissing, liveMissing string
		record                     *corev1.Service
		fails                      error
		want, wantErr, calls       bool
		spec                       v1.ClusterPolicySpec
		dropped                    []string
	}{
		"applied before": {
			cached: policyOf(mirrorSpec(), 1),
			record: specRecord(mirrorSpec(), policyUID),
			want:   true,
			spec:   mirrorSpec(),
		},
		"nothing applied yet": {
			cached: policyOf(mirrorSpec(), 1),
			live:   policyOf(mirrorSpec(), 1),
			want:   true,
			calls:  true,
			spec:   mirrorSpec(),
		},
		"edited": {
			cached: policyOf(truncatedSpec(), 2),
			live:   policyOf(truncatedSpec(), 2),
			record: specRecord(mirrorSpec(), policyUID),
			want:   true,
			calls:  true,
			spec:   truncatedSpec(),
		},
		"the CRD misses fields that the spec never had": {
			cached:        policyOf(truncatedSpec(), 1),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			record:        specRecord(truncatedSpec(), policyUID),
			want:          true,
			spec:          truncatedSpec(),
		},
		"the CRD misses a field of the cached spec": {
			cached:        policyOf(mirrorSpec(), 1),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			record:        specRecord(mirrorSpec(), policyUID),
			spec:          mirrorSpec(),
			dropped:       []string{"spec.global"},
		},
		"the CRD misses a field of the last applied spec": {
			cached:        policyOf(truncatedSpec(), 1),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			record:        specRecord(mirrorSpec(), policyUID),
			spec:          truncatedSpec(),
		},
		"the CRD misses fields, nothing recorded": {
			cached:        policyOf(truncatedSpec(), 1),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			spec:          truncatedSpec(),
		},
		"the CRD misses fields, edited": {
			cached:        policyOf(paused, 2),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			record:        specRecord(truncatedSpec(), policyUID),
			spec:          paused,
		},
		"the CRD misses fields of the status only": {
			cached:        policyOf(truncatedSpec(), 2),
			live:          policyOf(truncatedSpec(), 2),
			cachedMissing: "pools",
			liveMissing:   "pools",
			record:        specRecord(mirrorSpec(), policyUID),
			want:          true,
			calls:         true,
			spec:          truncatedSpec(),
		},
		"the CRD misses fields, not in the cache yet": {
			cached:        policyOf(truncatedSpec(), 2),
			live:          policyOf(truncatedSpec(), 2),
			cachedMissing: allFields,
			liveMissing:   noGlobal,
			record:        specRecord(mirrorSpec(), policyUID),
			calls:         true,
			spec:          truncatedSpec(),
		},
		"the CRD is updated, the cache has the truncated policy": {
			cached: policyOf(truncatedSpec(), 1),
			live:   policyOf(mirrorSpec(), 1),
			record: specRecord(mirrorSpec(), policyUID),
			want:   true,
			calls:  true,
			spec:   mirrorSpec(),
		},
		"differs with the same generation": {
			cached: policyOf(truncatedSpec(), 1),
			live:   policyOf(truncatedSpec(), 1),
			record: specRecord(mirrorSpec(), policyUID),
			calls:  true,
			spec:   truncatedSpec(),
		},
		"a policy that adopts objects without an owner": {
			cached: policyOf(truncatedSpec(), 1),
			live:   policyOf(truncatedSpec(), 1),
			record: specRecord(mirrorSpec(), ""),
			want:   true,
			calls:  true,
			spec:   truncatedSpec(),
		},
		"the CRD misses fields, the objects belong to another policy": {
			cached:        policyOf(truncatedSpec(), 1),
			cachedMissing: noGlobal,
			liveMissing:   noGlobal,
			record:        specRecord(truncatedSpec(), "another"),
			spec:          truncatedSpec(),
		},
		"paused": {
			cached: policyOf(paused, 2),
			record: specRecord(truncatedSpec(), policyUID),
			want:   true,
			spec:   paused,
		},
		"the policy is deleted": {
			cached: policyOf(mirrorSpec(), 2),
			calls:  true,
			spec:   mirrorSpec(),
		},
		"reading the CRD fails": {
			cached:  policyOf(mirrorSpec(), 2),
			live:    policyOf(mirrorSpec(), 2),
			fails:   errors.New("no answer"),
			wantErr: true,
			calls:   true,
			spec:    mirrorSpec(),
		},
		"reading the CRD is forbidden": {
			cached: policyOf(mirrorSpec(), 2),
			live:   policyOf(mirrorSpec(), 2),
			want:   true,
			calls:  true,
			spec:   mirrorSpec(),
			fails:  apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, crd.Name, nil),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			version := map[bool]string{true: "7", false: "8"}[test.cachedMissing == test.liveMissing]
			cached := fakeCluster(crdWithout("7", test.cachedMissing), test.record, test.cached)
			calls := 0
			live := interceptor.NewClient(
				fakeCluster(crdWithout(version, test.liveMissing), nil, test.live),
				interceptor.Funcs{
					List: func(
						ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption,
					) error {
						calls++
						return next.List(ctx, list, options...)
					},
				},
			)
			reader := &failingReader{Reader: cached}
			r := New(Options{
				Client: cached, Live: live, Namespace: namespace,
				Schema: &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: cached, Live: reader},
				Clock:  clocktesting.NewFakePassiveClock(time.Now()), Timing: DefaultTiming(),
			})
			s := r.newScope()
			var err error
			s.policy, s.all, err = observe.Policies(t.Context(), cached)
			g.Expect(err).NotTo(HaveOccurred())
			s.compareSchema(t.Context())
			reader.Reader, reader.err = live, test.fails
			got, err := s.confirmSpec(t.Context())
			g.Expect(err != nil).To(Equal(test.wantErr), "%v", err)
			g.Expect(got).To(Equal(test.want))
			g.Expect(s.policy.Spec).To(Equal(test.spec))
			g.Expect(calls).To(Equal(map[bool]int{true: 1}[test.calls]), "lists")
			g.Expect(s.droppedFields).To(Equal(test.dropped))
		})
	}
}

// A spec that differs with the same generation is applied after the stabilization time: another client has written the
// policy while the CRD had fewer fields, so that they are lost.
func TestATruncatedSpecIsAppliedAfterTheStabilization(t *testing.T) {
	g := NewWithT(t)
	c := fakeCluster(crdWithout("7", ""), specRecord(mirrorSpec(), policyUID), policyOf(truncatedSpec(), 1))
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := New(Options{
		Client: c, Live: c, Namespace: namespace,
		Schema: &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: c, Live: c},
		Clock:  clock, Timing: DefaultTiming(),
	})
	pass := func() (bool, time.Duration) {
		s := r.newScope()
		var err error
		s.policy, s.all, err = observe.Policies(t.Context(), c)
		g.Expect(err).NotTo(HaveOccurred())
		got, err := s.confirmSpec(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		if got {
			s.unfreeze(t.Context())
		}
		return got, s.requeueDelay
	}
	complete, wait := pass()
	g.Expect(complete).To(BeFalse())
	g.Expect(wait).To(Equal(r.Timing.SpecStabilization))
	clock.SetTime(clock.Now().Add(wait - time.Second))
	complete, wait = pass()
	g.Expect(complete).To(BeFalse())
	g.Expect(wait).To(Equal(time.Second))
	clock.SetTime(clock.Now().Add(wait))
	for range 2 {
		// Also before the cache has the new record.
		complete, _ = pass()
		g.Expect(complete).To(BeTrue())
	}
}

// fakeCluster returns a client with the CRD and, unless nil, the other objects.
func fakeCluster(
	definition *unstructured.Unstructured,
	record *corev1.Service,
	policy *v1.ClusterPolicy,
) client.WithWatch {
	all := runtime.NewScheme()
	must(errors.Join(v1.AddToScheme(all), corev1.AddToScheme(all), apiextensionsv1.AddToScheme(all)))
	builder := fake.NewClientBuilder().WithScheme(all).WithObjects(definition)
	if record != nil {
		builder = builder.WithObjects(record.DeepCopy())
	}
	if policy != nil {
		builder = builder.WithObjects(policy.DeepCopy())
	}
	return builder.Build()
}

// failingReader fails all Gets while err is set.
type failingReader struct {
	client.Reader
	err error
}

func (f *failingReader) Get(
	ctx context.Context,
	key client.ObjectKey,
	object client.Object,
	options ...client.GetOption,
) error {
	if f.err != nil {
		return f.err
	}
	return f.Reader.Get(ctx, key, object, options...)
}

var _ = Describe("A CRD that is older than the operator", Ordered, func() {
	liveCRD := func(ctx context.Context) *unstructured.Unstructured {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(
			schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		)
		Expect(admin.Get(ctx, client.ObjectKey{Name: crd.Name}, found)).To(Succeed())
		return found
	}
	removeField := func(ctx context.Context, block string) {
		const path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/"
		patch := []byte(`[{"op":"remove","path":"` + path + `properties/` + block + `"},
			{"op":"remove","path":"` + path + `x-kubernetes-validations"}]`)
		Expect(admin.Patch(ctx, liveCRD(ctx), client.RawPatch(types.JSONPatchType, patch))).To(Succeed())
	}
	restoreCRD := func(ctx context.Context) {
		Expect(admin.Patch(ctx, liveCRD(ctx), client.RawPatch(types.ApplyPatchType, crd.ClusterPolicy),
			client.ForceOwnership, client.FieldOwner("test"))).To(Succeed())
	}
	// The API server serves the restored definition a moment later.
	awaitGlobal := func(ctx context.Context, policies ...string) {
		for _, name := range policies {
			Eventually(func() *v1.GlobalSpec { return getPolicy(ctx, name).Spec.Global }).Should(
				HaveValue(HaveField("Registry", "mirror.example.com")))
		}
	}
	AfterEach(func(ctx SpecContext) { restoreCRD(ctx) })

	It("allows writes only of a policy that is complete", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{})
		env.createPolicy(ctx, "second", v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}})
		env.settle(ctx)
		second := getPolicy(ctx, "second")
		second.Status = v1.ClusterPolicyStatus{}
		Expect(admin.Status().Update(ctx, second)).To(Succeed())
		removeField(ctx, "global")
		env.pass(ctx, statusInterval)
		Expect(env.takeWrites()).To(ConsistOf("update status ClusterPolicy policy"))
		Expect(meta.FindStatusCondition(env.policy(ctx).Status.Conditions, v1.ConditionCRDOutdated)).NotTo(BeNil())

		restoreCRD(ctx)
		awaitGlobal(ctx, "second")
		env.settle(ctx)
		Expect(getPolicy(ctx, "second").Spec.Global).To(HaveField("Registry", "mirror.example.com"))
		Expect(getPolicy(ctx, "second").Status.State).To(Equal(v1.StateIgnored))
	})

	// It may have been admitted by a definition that had the fields.
	It("keeps the fields of policies that cannot be decoded", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		spec := v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}}
		env.createPolicy(ctx, "policy", spec)
		env.createPolicy(ctx, "second", spec)
		env.settle(ctx)
		for _, name := range []string{"policy", "second"} {
			setMark(ctx, name, "cannot be decoded: spec.a is 5")
		}
		removeField(ctx, "global")
		env.takeWrites()
		for range 3 {
			env.pass(ctx, statusInterval)
		}
		Expect(env.takeWrites()).To(ConsistOf(HavePrefix("create Event policy."), HavePrefix("create Event second.")))
		restoreCRD(ctx)
		awaitGlobal(ctx, "policy", "second")
		env.pass(ctx, statusInterval)
		Expect(condition(env.policy(ctx), v1.ConditionReady)).To(Equal("False Undecodable"))
	})

	It("is reported once, with the missing fields, and stops all repairs", func(ctx SpecContext) {
		env := newEnv(gpuNode("a"))
		env.createPolicy(ctx, "policy", v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.example.com"}})
		env.settle(ctx)
		basis, before := env.fleet.Basis(), env.policy(ctx)
		removeField(ctx, "global")
		Expect(admin.Delete(ctx, daemonSet(ctx, pluginName))).To(Succeed())
		for range 3 {
			env.pass(ctx, statusInterval)
		}
		Expect(env.takeWrites()).To(ConsistOf(HavePrefix("create Event policy.")))
		Expect(env.policy(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		Expect(env.fleet.Basis().Decisions).To(BeIdenticalTo(basis.Decisions), "the last decisions")

		env.reconciler = New(env.reconciler.Options)
		resetSchema(ctx, env)
		env.pass(ctx, statusInterval)
		var reported []corev1.Event
		list := &corev1.EventList{}
		Expect(admin.List(ctx, list, client.InNamespace(corev1.NamespaceDefault))).To(Succeed())
		for _, event := range list.Items {
			if event.InvolvedObject.UID == before.UID {
				reported = append(reported, event)
			}
		}
		Expect(reported).To(ConsistOf(And(
			HaveField("Reason", v1.ConditionCRDOutdated), HaveField("Type", corev1.EventTypeWarning),
			HaveField("Message", And(ContainSubstring("does not have spec.global"),
				// The API server may serve the policy with all fields for a moment yet.
				Or(ContainSubstring("fields may have been dropped"), ContainSubstring("the next write drops them")))))),
			"also after a restart")

		restoreCRD(ctx)
		awaitGlobal(ctx, "policy")
		env.pass(ctx, statusInterval)
		Expect(daemonSet(ctx, pluginName)).NotTo(BeNil())
		Expect(env.policy(ctx).Spec.Global).To(HaveField("Registry", "mirror.example.com"))
	})
})

// A spec that was there for a moment is stable from when it is back, as the last applied one was in between.
func TestSinceWhenASpecDiffers(t *testing.T) {
	g := NewWithT(t)
	applied, other := observe.SpecID{Generation: 1, Digest: "a"}, observe.SpecID{Generation: 1, Digest: "b"}
	r := &Reconciler{}
	pass := func(spec observe.SpecID, after time.Duration) time.Time {
		s := &scope{
			Reconciler: r, policy: &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: "p"}},
			current: spec, lastApplied: applied, now: time.Unix(1000, 0).Add(after),
		}
		if spec != applied {
			s.noteChange()
		} else {
			s.unfreeze(t.Context())
		}
		return r.schemaGuard.since
	}
	g.Expect(pass(other, 0)).To(Equal(time.Unix(1000, 0)))
	g.Expect(pass(other, time.Minute)).To(Equal(time.Unix(1000, 0)))
	g.Expect(pass(applied, 2*time.Minute)).To(BeZero())
	g.Expect(pass(other, 3*time.Minute)).To(Equal(time.Unix(1180, 0)))
}

// While passes are frozen, nodes are served by the last decisions about the policy. A process that has made none keeps
// their labels.
func TestDecisionsThatAreKept(t *testing.T) {
	decisions := decisionsOf(v1.ClusterPolicySpec{})
	other := policyOf(v1.ClusterPolicySpec{}, 1)
	other.UID = "other"
	for name, test := range map[string]struct {
		basis *fleet.Basis
		kept  bool
	}{
		"none yet":       {},
		"no policy":      {basis: &fleet.Basis{KeepNodes: true}},
		"another policy": {basis: &fleet.Basis{Policy: other, Decisions: decisions}},
		"the policy": {
			basis: &fleet.Basis{Policy: policyOf(v1.ClusterPolicySpec{}, 1), Decisions: decisions}, kept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t)
			u.hydrate(gpuNode("a"))
			if test.basis != nil {
				u.Fleet.Publish(*test.basis, u.clock.Now())
			}
			s := u.scope()
			s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{driverName: driverDaemonSet(driverName, false)}
			s.keepDecisions(u.context())
			u.Expect(s.basis).To(BeIdenticalTo(u.Fleet.Basis()))
			if !test.kept {
				u.Expect(*s.basis).To(And(HaveField("KeepNodes", true), HaveField("Decisions", BeNil()),
					HaveField("Policy", BeNil())))
				u.Expect(s.planned.Steps).To(BeEmpty())
				return
			}
			u.Expect(*s.basis).To(And(HaveField("KeepNodes", false), HaveField("Decisions", BeIdenticalTo(decisions)),
				HaveField("Policy.UID", policyUID), HaveField("Stack.DaemonSets", HaveKey(driverName))))
			u.Expect(s.planned.Steps).NotTo(BeEmpty())
		})
	}
}

// A freeze is reported once for each policy and CRD, and its end is logged.
func TestReportsOfAFreeze(t *testing.T) {
	u := newUnit(t)
	s := u.scope()
	s.freeze(u.context())
	u.Expect(u.events()).To(BeEmpty(), "the spec is not stable yet")
	u.Expect(u.logged).To(BeEmpty())
	s.unfreeze(u.context())
	u.Expect(u.logged).To(BeEmpty())
	s.missingFields, s.droppedFields = []string{"spec.a", "status.b"}, []string{"spec.a.c"}
	for range 2 {
		s.freeze(u.context())
		u.Expect(u.events()).To(ConsistOf(HavePrefix("Warning CRDOutdated: ")))
		u.Expect(u.events()[0]).To(And(ContainSubstring("spec.a"), ContainSubstring("spec.a.c"),
			Not(ContainSubstring("status.b"))))
		u.Expect(u.logged).To(ConsistOf(And(ContainSubstring("Frozen: applying no change"),
			ContainSubstring(`"decided"=false`))))
	}
	s.policy.UID = "another"
	s.freeze(u.context())
	u.Expect(u.events()).To(HaveLen(2))
	s.current = observe.SpecID{Generation: 1, Digest: "a"}
	u.schemaGuard.since = u.clock.Now()
	for range 2 {
		s.unfreeze(u.context())
		u.Expect(u.logged).To(HaveLen(3))
		u.Expect(u.logged[2]).To(ContainSubstring("No longer frozen"))
		u.Expect(u.schemaGuard.reported).To(BeEmpty())
		u.Expect(u.schemaGuard.since).NotTo(BeZero(), "its spec is not recorded yet")
	}
}

// The spec of the API server is adopted, without what a cache does not have, unless it is of another policy.
func TestWhichLiveSpecIsAdopted(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.ClusterPolicy)
		want   bool
	}{
		"the policy":        {func(*v1.ClusterPolicy) {}, true},
		"created again":     {func(p *v1.ClusterPolicy) { p.UID = "another" }, false},
		"undecodable":       {func(p *v1.ClusterPolicy) { p.Annotations = map[string]string{undecodableMark: "a"} }, false},
		"changed meanwhile": {func(p *v1.ClusterPolicy) { p.Generation, p.Spec = 3, mirrorSpec() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			live := policyOf(truncatedSpec(), 2)
			test.change(live)
			u := newUnit(t, live, specRecord(v1.ClusterPolicySpec{}, policyUID))
			s := u.scope()
			cached := s.policy
			cached.Spec, cached.Generation = truncatedSpec(), 2
			u.Expect(s.confirmSpec(u.context())).To(Equal(test.want))
			if !test.want {
				u.Expect(s.policy).To(BeIdenticalTo(cached))
				return
			}
			u.Expect(s.policy.Spec).To(Equal(live.Spec))
			u.Expect(s.policy.ManagedFields).To(BeEmpty())
			u.Expect(s.all).To(ConsistOf(HaveField("Generation", live.Generation)))
			current, err := observe.SpecIDOf(live)
			u.Expect(err).NotTo(HaveOccurred())
			u.Expect(s.current).To(Equal(current))
		})
	}
	for op, text := range map[string]string{
		"cached list Service": "listing Services", "live list ClusterPolicy": "listing ClusterPolicies",
		"live get CustomResourceDefinition": "reading CustomResourceDefinition",
	} {
		u := newUnit(t, policyOf(truncatedSpec(), 2))
		s := u.scope()
		u.failOnce(op, 1)
		complete, err := s.confirmSpec(u.context())
		u.Expect(complete).To(BeFalse(), op)
		u.Expect(err).To(And(MatchError(errInjected), MatchError(ContainSubstring(text))))
	}
}
