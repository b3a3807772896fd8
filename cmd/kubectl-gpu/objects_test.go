package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// daemonSets and nodes are the resources of writable.
var (
	daemonSets = appsv1.SchemeGroupVersion.WithResource("daemonsets")
	nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
)

// writable returns a session with these objects, and its client.
func writable(t *testing.T, objects ...runtime.Object) (*session, *fake.FakeDynamicClient) {
	t.Helper()
	g, scheme := NewWithT(t), runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	g.Expect(appsv1.AddToScheme(scheme)).To(Succeed())
	client := fake.NewSimpleDynamicClient(scheme, objects...)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), meta.RESTScopeNamespace)
	return &session{objects: client, mapper: mapper}, client
}

func aDaemonSet(name string, uid types.UID) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: uid, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
	}
}

// deletions returns the names and the propagation of the deletions that a client was asked for.
func deletions(client *fake.FakeDynamicClient) map[string]metav1.DeletionPropagation {
	found := map[string]metav1.DeletionPropagation{}
	for _, action := range client.Actions() {
		if one, is := action.(clienttesting.DeleteActionImpl); is {
			found[one.Name] = *one.DeleteOptions.PropagationPolicy
		}
	}
	return found
}

// Objects are deleted together, and then waited for, each as the one that was read.
func TestRemove(t *testing.T) {
	one, two := target{"daemonsets.apps", "a", "one"}, target{"daemonset.v1.apps", "a", "two"}
	none := target{"daemonsets", "a", "none"}
	for name, test := range map[string]struct {
		how deletion
		// end is what happens to the objects after 3 seconds.
		end func(g *WithT, client *fake.FakeDynamicClient)
		// want and took are how it ends and when.
		want string
		took time.Duration
	}{
		"without waiting": {how: deletion{}},
		"until they are gone": {
			how: deletion{propagation: metav1.DeletePropagationForeground, wait: time.Minute},
			end: func(g *WithT, client *fake.FakeDynamicClient) {
				g.Expect(client.Tracker().Delete(daemonSets, "a", "one")).To(Succeed())
				g.Expect(client.Tracker().Delete(daemonSets, "a", "two")).To(Succeed())
			}, took: 3 * time.Second,
		},
		"until they are others": {
			how: deletion{propagation: metav1.DeletePropagationOrphan, wait: time.Minute},
			end: func(g *WithT, client *fake.FakeDynamicClient) {
				g.Expect(client.Tracker().Delete(daemonSets, "a", "two")).To(Succeed())
				other := &unstructured.Unstructured{}
				other.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
				other.SetNamespace("a")
				other.SetName("one")
				other.SetUID("new")
				g.Expect(client.Tracker().Update(daemonSets, other, "a")).To(Succeed())
			}, took: 3 * time.Second,
		},
		"one does not end": {
			how: deletion{wait: 5 * time.Second},
			end: func(g *WithT, client *fake.FakeDynamicClient) {
				g.Expect(client.Tracker().Delete(daemonSets, "a", "one")).To(Succeed())
			}, took: 5 * time.Second,
			want: "timed out waiting for the end of daemonset.v1.apps two after 5s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				s, client := writable(t, aDaemonSet("one", "1"), aDaemonSet("two", "2"))
				client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, nil // It has finalizers.
				})
				if test.end != nil {
					time.AfterFunc(3*time.Second-time.Millisecond, func() { test.end(g, client) })
				}
				begin := time.Now()
				err := s.remove(t.Context(), test.how, one, none, two)
				g.Expect(time.Since(begin)).To(Equal(test.took))
				if test.want == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(test.want))
					g.Expect(errors.Is(err, errStillThere)).To(BeTrue())
				}
				propagation := test.how.propagation
				if propagation == "" {
					propagation = metav1.DeletePropagationBackground
				}
				want := map[string]metav1.DeletionPropagation{"one": propagation, "two": propagation}
				if test.how.wait == 0 { // It need not know what exists.
					want["none"] = propagation
				}
				g.Expect(deletions(client)).To(Equal(want))
			})
		})
	}
}

// A failure of a call is neither the end of an object nor a time-out.
func TestRemoveFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(daemonSets.GroupResource(), "one", errors.New("no"))
	for _, verb := range []string{"get", "delete"} {
		g := NewWithT(t)
		s, client := writable(t, aDaemonSet("one", "1"))
		client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, forbidden
		})
		err := s.remove(t.Context(), deletion{wait: time.Minute}, target{"daemonsets", "a", "one"})
		g.Expect(err).To(MatchError(ContainSubstring("Error from server (Forbidden)")), verb)
	}
	g := NewWithT(t)
	s, _ := writable(t)
	g.Expect(s.remove(t.Context(), deletion{}, target{"pods", "a", "one"})).To(
		MatchError(`the server doesn't have a resource type "pods"`))
}

// A call that fails is made again until the time is over, and is no time-out. Without the right it is not.
func TestAwaitEnd(t *testing.T) {
	busy := apierrors.NewServiceUnavailable("starting")
	forbidden := apierrors.NewForbidden(daemonSets.GroupResource(), "x", errors.New("no"))
	for name, test := range map[string]struct {
		failures int
		err      error
		want     gomegatypes.GomegaMatcher
		took     time.Duration
	}{
		"gone":                {want: Succeed()},
		"gone after failures": {failures: 3, err: busy, want: Succeed(), took: 3 * endInterval},
		"fails all the time": {failures: 100, err: busy, took: 5 * time.Second,
			want: MatchError("waiting for the end of x: starting")},
		"without the right": {failures: 1, err: forbidden, want: MatchError(forbidden)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, begin, calls := NewWithT(t), time.Now(), 0
				err := awaitEnd(t.Context(), 5*time.Second, func(context.Context) (string, error) {
					if calls++; calls <= test.failures {
						return "x", test.err
					}
					return "", nil
				})
				g.Expect(err).To(test.want)
				g.Expect(errors.Is(err, errStillThere)).To(BeFalse())
				g.Expect(time.Since(begin)).To(Equal(test.took))
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := awaitEnd(ctx, time.Minute, func(context.Context) (string, error) { return "x", nil })
	NewWithT(t).Expect(err).To(MatchError(context.Canceled))
}

// laterMapper knows the resources of another mapper once it is reset.
type laterMapper struct {
	meta.RESTMapper
	later meta.RESTMapper
}

func (m *laterMapper) Reset() { m.RESTMapper = m.later }

// A kind that is installed meanwhile is found, and one that is removed has no objects.
func TestKindsThatComeAndGo(t *testing.T) {
	g := NewWithT(t)
	s, client := writable(t, aDaemonSet("one", "1"))
	s.mapper = &laterMapper{RESTMapper: meta.NewDefaultRESTMapper(nil), later: s.mapper}
	found := 0
	count := func(*unstructured.Unstructured) error {
		found++
		return nil
	}
	g.Expect(s.get(t.Context(), selection{resources: "daemonsets.apps"}, count)).To(Succeed())
	g.Expect(found).To(Equal(1))
	client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(daemonSets.GroupResource(), "")
	})
	g.Expect(s.get(t.Context(), selection{resources: "daemonsets.apps"}, count)).To(Succeed())
	g.Expect(found).To(Equal(1))
}

// A conflict is found wherever it is among the errors of several calls.
func TestConflictAmongErrors(t *testing.T) {
	g, resource := NewWithT(t), nodes.GroupResource()
	conflict := said(apierrors.NewConflict(resource, "a", errors.New("changed")))
	refused := said(apierrors.NewForbidden(resource, "b", errors.New("no")))
	g.Expect(errors.Is(fmt.Errorf("x: %w", errors.Join(refused, conflict)), errConflict)).To(BeTrue())
	g.Expect(errors.Is(errors.Join(refused, refused), errConflict)).To(BeFalse())
	g.Expect(apierrors.IsConflict(conflict)).To(BeTrue())
}

// What is gone needs no patch; other failures are returned.
func TestPatch(t *testing.T) {
	g := NewWithT(t)
	s, client := writable(t, aDaemonSet("one", "1"))
	labelled := map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}}
	g.Expect(s.merge(t.Context(), target{"daemonsets", "a", "none"}, labelled)).To(Succeed())
	g.Expect(s.merge(t.Context(), target{"daemonsets", "a", "one"}, labelled)).To(Succeed())
	patched, err := client.Resource(daemonSets).Namespace("a").Get(t.Context(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(patched.GetLabels()).To(Equal(map[string]string{"x": "y"}))
	one := target{"daemonsets", "a", "one"}
	g.Expect(s.patch(t.Context(), one, types.MergePatchType, labelled, "status")).To(Succeed())
	last := client.Actions()[len(client.Actions())-1]
	g.Expect(last.GetSubresource()).To(Equal("status"))
	client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(daemonSets.GroupResource(), "one", errors.New("changed"))
	})
	err = s.merge(t.Context(), target{"daemonsets", "a", "one"}, labelled)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue())
}

// A selection reads its resources in their order, and of names those that exist.
func TestGet(t *testing.T) {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"x": "y"}},
	}
	for name, test := range map[string]struct {
		of   selection
		want []string
	}{
		"two resources": {selection{resources: "nodes,daemonsets.apps"}, []string{"n", "one", "two"}},
		"a namespace":   {selection{resources: "nodes,daemonsets.apps", namespace: "b"}, []string{"n"}},
		"names": {
			selection{resources: "daemonsets", namespace: "a", names: []string{"none", "two"}}, []string{"two"},
		},
		"a label":               {selection{resources: "nodes,daemonsets", label: "x=y"}, []string{"n"}},
		"with managed fields":   {selection{resources: "daemonsets", managers: true}, []string{"one m", "two m"}},
		"a name with a version": {selection{resources: "daemonset.v1.apps"}, []string{"one", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, _ := writable(t, node, aDaemonSet("one", "1"), aDaemonSet("two", "2"))
			var found []string
			g.Expect(s.get(t.Context(), test.of, func(object *unstructured.Unstructured) error {
				text := object.GetName()
				for _, entry := range object.GetManagedFields() {
					text += " " + entry.Manager
				}
				found = append(found, text)
				return nil
			})).To(Succeed())
			g.Expect(found).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	s, client := writable(t, node)
	g.Expect(s.get(t.Context(), selection{resources: "nodes"}, func(*unstructured.Unstructured) error {
		return errors.New("not this one")
	})).To(MatchError("reading nodes: not this one"))
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(nodes.GroupResource(), "", errors.New("no"))
	})
	for _, names := range [][]string{nil, {"n"}} {
		g.Expect(s.get(t.Context(), selection{resources: "nodes", names: names}, nil)).To(
			MatchError(HavePrefix("reading nodes: Error from server (Forbidden): ")))
	}
}

// An object is created as it is given.
func TestCreate(t *testing.T) {
	g := NewWithT(t)
	s, client := writable(t)
	content := map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": appsv1.DaemonSetSpec{MinReadySeconds: 7},
		"metadata": map[string]any{"namespace": "a", "name": "one", "labels": map[string]string{"x": "y"}},
	}
	g.Expect(s.create(t.Context(), "daemonsets.apps", content)).To(Succeed())
	_, err := client.Resource(daemonSets).Namespace("a").Get(t.Context(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}
