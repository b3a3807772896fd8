package apply

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// recorder is an API server that records what patches and deletions demand.
type recorder struct {
	client.WithWatch
	patches []string
	// owner is the field manager of the last patch.
	owner   string
	deleted []client.DeleteOptions
	// gets are the reads.
	gets int
	// meanwhile is called once, before the next patch.
	meanwhile func()
}

func newRecorder(objects ...client.Object) *recorder {
	r := &recorder{}
	r.WithWatch = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithReturnManagedFields().
		WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(
			ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
		) error {
			r.gets++
			return w.Get(ctx, key, o, options...)
		},
		Patch: func(
			ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption,
		) error {
			if meanwhile := r.meanwhile; meanwhile != nil {
				r.meanwhile = nil
				meanwhile()
			}
			body, err := p.Data(o)
			if err != nil {
				return err
			}
			r.patches, r.owner = append(r.patches, string(body)), (&client.PatchOptions{}).ApplyOptions(options).FieldManager
			return w.Patch(ctx, o, p, options...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			r.deleted = append(r.deleted, *(&client.DeleteOptions{}).ApplyOptions(options))
			return w.Delete(ctx, o, options...)
		},
	}).Build()
	return r
}

func (r *recorder) applier() *Applier {
	return New(r, r, clock.RealClock{}, Timing{Deadline: time.Minute, RoundTimeout: time.Minute, MaxCalls: 1})
}

func daemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "gpu-operator", Name: name, UID: types.UID("uid-" + name),
	}}
}

// read returns the live DaemonSet of a name.
func (r *recorder) read(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	live := &appsv1.DaemonSet{}
	NewWithT(t).Expect(r.Get(t.Context(), client.ObjectKey{Namespace: "gpu-operator", Name: name}, live)).To(Succeed())
	return live
}

// touch changes a DaemonSet as another writer does.
func (r *recorder) touch(t *testing.T, name string) {
	t.Helper()
	live := r.read(t, name)
	live.Annotations = map[string]string{"example.com/touched": "true"}
	NewWithT(t).Expect(r.Update(t.Context(), live)).To(Succeed())
}

// An object that was created again with the same name is not deleted, and what objects own is deleted with them.
func TestDeletionsDemandWhatWasSeen(t *testing.T) {
	g, pod := NewWithT(t), configMap("a", func(c *corev1.ConfigMap) { c.UID = "uid-a" })
	for name, deletes := range map[string]func(*recorder) error{
		"pruned": func(r *recorder) error {
			return r.applier().Prune(t.Context(), policy, []client.Object{configMap("kind")}, Rendered{})
		},
		"by itself": func(r *recorder) error { return r.applier().Delete(t.Context(), pod.DeepCopy()) },
	} {
		r := newRecorder(pod.DeepCopy())
		g.Expect(deletes(r)).To(Succeed(), name)
		g.Expect(r.deleted).To(HaveLen(1), name)
		g.Expect(*r.deleted[0].Preconditions.UID).To(Equal(types.UID("uid-a")), name)
		g.Expect(*r.deleted[0].PropagationPolicy).To(Equal(metav1.DeletePropagationBackground), name)
	}
}

// The pods of a DaemonSet stay, and those of one with the same name that was created since are not touched. One alone
// needs no finalizer; one of several is held by it, also if it is being deleted already.
func TestOrphanDemandsWhatWasRead(t *testing.T) {
	g, r := NewWithT(t), newRecorder(daemonSet("a"))
	g.Expect(r.applier().Orphan(t.Context(), []*appsv1.DaemonSet{r.read(t, "a")})).To(Succeed())
	g.Expect(r.patches).To(BeEmpty())
	g.Expect(r.deleted).To(HaveLen(1))
	g.Expect(*r.deleted[0].Preconditions.UID).To(Equal(types.UID("uid-a")))
	g.Expect(*r.deleted[0].PropagationPolicy).To(Equal(metav1.DeletePropagationOrphan))

	leaving := daemonSet("leaving")
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
	r = newRecorder(leaving)
	held := []*appsv1.DaemonSet{r.read(t, "leaving"), r.read(t, "leaving")}
	g.Expect(r.applier().Orphan(t.Context(), held)).To(Succeed())
	g.Expect(r.patches).To(BeEmpty(), "it is being deleted")
	g.Expect(r.deleted).To(BeEmpty(), "the garbage collector is at it")
}

// That the garbage collector has changed a DaemonSet meanwhile is no failure: the next call goes on.
func TestOrphanBesideTheGarbageCollector(t *testing.T) {
	g, ds := NewWithT(t), daemonSet("a")
	ds.DeletionTimestamp = new(metav1.Now())
	ds.Finalizers = []string{metav1.FinalizerOrphanDependents, labels.HandOverFinalizer}
	r := newRecorder(ds)
	r.meanwhile = func() { r.touch(t, "a") }
	g.Expect(r.applier().Orphan(t.Context(), []*appsv1.DaemonSet{r.read(t, "a")})).To(Succeed())
	g.Expect(r.read(t, "a").Finalizers).To(ContainElement(labels.HandOverFinalizer), "the write was refused")
	g.Expect(r.applier().Orphan(t.Context(), []*appsv1.DaemonSet{r.read(t, "a")})).To(Succeed())
	g.Expect(r.read(t, "a").Finalizers).To(Equal([]string{metav1.FinalizerOrphanDependents}))
}

// A pod that was created again with the same name is not relabelled, and counts as created by no DaemonSet.
func TestRelabelDemandsThePodThatWasRead(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "gpu-operator", Name: "driver", UID: "uid-pod", Annotations: map[string]string{"theirs": "stays"},
		Labels: map[string]string{"pod-template-generation": "3", "app": "driver"},
	}}
	g, r := NewWithT(t), newRecorder(pod.DeepCopy())
	g.Expect(r.applier().Relabel(t.Context(), pod.DeepCopy(), map[string]string{"a": "b"}, nil)).To(Succeed())
	g.Expect(r.patches).To(ConsistOf(
		MatchJSON(`{"metadata":{"uid":"uid-pod","labels":{"a":"b","pod-template-generation":null}}}`)))
	live := &corev1.Pod{}
	g.Expect(r.Get(t.Context(), client.ObjectKeyFromObject(pod), live)).To(Succeed())
	g.Expect(live.Labels).To(Equal(map[string]string{"a": "b", "app": "driver"}))
	g.Expect(live.Annotations).To(HaveKeyWithValue("theirs", "stays"))
	g.Expect(r.owner).To(Equal("gpu-operator"))
	unknown := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "gone", UID: "uid-gone"}}
	g.Expect(r.applier().Relabel(t.Context(), unknown, map[string]string{"a": "b"}, nil)).NotTo(Succeed())
	r.patches = r.patches[:1]
	annotated := map[string]string{"c": "d"}
	g.Expect(r.applier().Relabel(t.Context(), pod.DeepCopy(), nil, annotated)).To(Succeed())
	g.Expect(r.patches[1]).To(
		MatchJSON(`{"metadata":{"uid":"uid-pod","labels":{"pod-template-generation":null},"annotations":{"c":"d"}}}`))
}

// An object that has changed since it was read gets neither another owner nor a finalizer.
func TestWritesOfWhatWasReadFailAfterAChange(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "new", UID: "new"}
	for name, write := range map[string]func(*Applier, client.Object) error{
		"its owner": func(a *Applier, o client.Object) error { return a.ReplaceOwner(t.Context(), o, owner) },
		"a finalizer": func(a *Applier, o client.Object) error {
			return a.SetFinalizer(t.Context(), o, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), newRecorder(daemonSet("a"))
			stale := r.read(t, "a")
			r.touch(t, "a")
			g.Expect(apierrors.IsConflict(write(r.applier(), stale))).To(BeTrue())
			live := r.read(t, "a")
			g.Expect(live.OwnerReferences).To(BeEmpty())
			g.Expect(live.Finalizers).To(BeEmpty())
			g.Expect(write(r.applier(), live)).To(Succeed())
			live = r.read(t, "a")
			g.Expect(len(live.OwnerReferences) + len(live.Finalizers)).To(Equal(1))
			writes := len(r.patches)
			g.Expect(r.applier().SetFinalizer(t.Context(), live, len(live.Finalizers) > 0)).To(Succeed())
			g.Expect(r.patches).To(HaveLen(writes), "it is as desired")
		})
	}
}

// Fields of objects that this operator has applied, and NVIDIA's has never written, are not taken over: they are not
// read again for it.
func TestOnlyFieldsOfNVIDIAsOperatorAreTakenOver(t *testing.T) {
	applied := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		ds := daemonSet("a")
		ds.Labels = map[string]string{labels.ManagedBy: labels.ManagedByValue, labels.Operand: "driver"}
		ds.Annotations = map[string]string{labels.Digest: "1"}
		change(ds)
		return ds
	}
	for name, test := range map[string]struct {
		live *appsv1.DaemonSet
		gets int
	}{
		"none":             {nil, 0},
		"applied":          {applied(func(*appsv1.DaemonSet) {}), 0},
		"with NVIDIA's":    {applied(func(ds *appsv1.DaemonSet) { ds.Annotations[labels.NVIDIAHash] = "1" }), 1},
		"never applied":    {applied(func(ds *appsv1.DaemonSet) { ds.Annotations = nil }), 1},
		"of another's too": {applied(func(ds *appsv1.DaemonSet) { ds.Labels = nil }), 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, r := NewWithT(t), newRecorder()
			rendered := daemonSet("a")
			rendered.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
			w, err := newWrite(policy, rendered)
			g.Expect(err).NotTo(HaveOccurred())
			var live client.Object
			if test.live != nil {
				live = test.live
			}
			g.Expect(r.applier().takeOver(t.Context(), w, live)).To(Succeed())
			g.Expect(r.gets).To(Equal(test.gets))
		})
	}
}

// What another writer has added to a placement field is removed only from the version that was just applied: the API
// server refuses the patch of another one.
func TestAdditionsAreRemovedFromWhatWasApplied(t *testing.T) {
	g, r, rendered := NewWithT(t), newRecorder(), daemonSet("a")
	rendered.UID = ""
	rendered.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	rendered.Labels = map[string]string{labels.ManagedBy: labels.ManagedByValue, labels.Operand: "driver"}
	rendered.OwnerReferences = configMap("a").OwnerReferences
	rendered.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	rendered.Spec.Template.Labels = map[string]string{"app": "a"}
	rendered.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/main:1"}}
	_, err := applyOne(r.applier(), rendered)
	g.Expect(err).NotTo(HaveOccurred())
	live := r.read(t, "a")
	live.Spec.Template.Spec.NodeSelector = map[string]string{"theirs": "true"}
	g.Expect(r.Update(t.Context(), live)).To(Succeed())

	applied := ""
	r.meanwhile = func() { applied = r.read(t, "a").ResourceVersion }
	wrote, err := applyOne(r.applier(), rendered)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrote).To(BeTrue())
	g.Expect(applied).NotTo(BeEmpty())
	g.Expect(r.patches).To(ConsistOf(MatchJSON(`[
		{"op": "replace", "path": "/metadata/resourceVersion", "value": "` + applied + `"},
		{"op": "remove", "path": "/spec/template/spec/nodeSelector"}]`)))
	live = r.read(t, "a")
	g.Expect(live.Spec.Template.Spec.NodeSelector).To(BeEmpty())

	live.Spec.Template.Spec.NodeSelector = map[string]string{"theirs": "true"}
	g.Expect(r.Update(t.Context(), live)).To(Succeed())
	r.meanwhile = func() { r.touch(t, "a") }
	_, err = applyOne(r.applier(), rendered)
	g.Expect(err).To(MatchError(ContainSubstring("patching DaemonSet a: ")))
}
