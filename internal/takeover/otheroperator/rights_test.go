package otheroperator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/heap"
)

// reviews answers as the API server does where NVIDIA's operator is installed in the namespace nvidia.
type reviews struct {
	mu      sync.Mutex
	allowed map[string]bool
	err     error
	// asked are the users that were asked about.
	asked []string
}

func newReviews() *reviews {
	return &reviews{allowed: map[string]bool{"system:serviceaccount:nvidia:gpu-operator": true}}
}

func (r *reviews) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, review.Spec.User)
	wanted := authorizationv1.ResourceAttributes{
		Group: "nvidia.com", Resource: "clusterpolicies", Subresource: "status", Verb: "update",
	}
	answer := review.DeepCopy()
	answer.Status.Allowed = *review.Spec.ResourceAttributes == wanted && r.allowed[review.Spec.User]
	return answer, r.err
}

func (r *reviews) allow(user string, allowed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed[user] = allowed
}

// takeAsked returns the users that were asked about since the last call.
func (r *reviews) takeAsked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.asked
	r.asked = nil
	return asked
}

const tenantsUser = "system:serviceaccount:tenant:default"

// tenants returns a pod that a tenant without rights makes look like NVIDIA's, and that never starts.
func tenants(change func(*corev1.Pod)) *corev1.Pod {
	return nvidiasPod(func(pod *corev1.Pod) {
		pod.Namespace, pod.UID, pod.Spec.ServiceAccountName = "tenant", "7", ""
		pod.OwnerReferences, pod.Status.Phase = nil, corev1.PodPending
		if change != nil {
			change(pod)
		}
	})
}

// Whoever may create pods in some namespace cannot freeze this operator.
func TestPodsWithoutRights(t *testing.T) {
	policy := func(name, namespace string) *v1.ClusterPolicy {
		return &v1.ClusterPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.ClusterPolicyStatus{Namespace: namespace},
		}
	}
	tests := map[string]struct {
		objects []client.Object
		allowed string
		// want is the UID of what is found.
		want string
	}{
		"of a tenant, pending": {objects: []client.Object{tenants(nil)}},
		"of a tenant, running": {objects: []client.Object{
			tenants(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }),
		}},
		"of a tenant with rights, pending": {
			objects: []client.Object{tenants(nil)}, allowed: tenantsUser, want: "7",
		},
		"of a tenant's other account": {
			objects: []client.Object{tenants(func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = "gpu-operator" })},
			allowed: tenantsUser,
		},
		"of another tenant": {objects: []client.Object{tenants(nil)}, allowed: "system:serviceaccount:other:default"},
		"beside NVIDIA's": {
			objects: []client.Object{
				tenants(func(pod *corev1.Pod) { pod.Namespace = "a" }), nvidiasPod(nil), tenants(nil),
			}, want: "1",
		},
		"beside NVIDIA's that is pending": {
			objects: []client.Object{
				tenants(nil), nvidiasPod(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }),
			}, want: "1",
		},
		"in the namespace of this operator": {
			objects: []client.Object{tenants(func(pod *corev1.Pod) { pod.Namespace = "gpu-operator" })}, want: "7",
		},
		"in the namespace of a policy's operator": {
			objects: []client.Object{policy("a", ""), policy("b", "tenant"), tenants(nil)}, want: "7",
		},
		"beside a policy of another namespace": {
			objects: []client.Object{policy("a", "gpu-operator"), tenants(nil)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, test.objects...)
			e.reviews.allow(test.allowed, true)
			e.Expect(e.check().Key).To(Equal(test.want))
		})
	}
}

// The review is about the account with its groups, to which rights may be bound, too.
func TestReviewedGroups(t *testing.T) {
	e := newEnv(t, tenants(nil))
	e.watcher.Reviews = reviewFunc(func(review *authorizationv1.SubjectAccessReview) {
		e.Expect(review.Spec.Groups).To(ConsistOf(
			"system:serviceaccounts", "system:serviceaccounts:tenant", "system:authenticated"))
		review.Status.Allowed = true
	})
	e.Expect(e.check()).NotTo(BeZero())
}

type reviewFunc func(*authorizationv1.SubjectAccessReview)

func (f reviewFunc) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	f(review)
	return review, nil
}

// An answer counts for 30 s, also for several pods of an account: rights may be granted and revoked.
func TestAnswersAreCached(t *testing.T) {
	e := newEnv(t, tenants(nil), tenants(func(pod *corev1.Pod) { pod.Name = "second" }))
	e.Expect(e.check()).To(BeZero())
	e.Expect(e.reviews.takeAsked()).To(Equal([]string{tenantsUser}))
	e.reviews.allow(tenantsUser, true)
	e.Expect(e.after(29 * time.Second)).To(BeZero())
	e.Expect(e.reviews.takeAsked()).To(BeEmpty())
	e.Expect(e.after(time.Second).Key).To(Equal("7"))
	e.Expect(e.reviews.takeAsked()).To(Equal([]string{tenantsUser}))
	e.reviews.allow(tenantsUser, false)
	e.Expect(e.after(29 * time.Second)).NotTo(BeZero())
	e.Expect(e.after(time.Second)).NotTo(BeZero(), "it may be replaced")
	e.Expect(e.after(10 * time.Second)).To(BeZero())
}

// A list asks about all new accounts, and about 20 that it has asked about before, in turn.
func TestAnswersAreAskedForInTurn(t *testing.T) {
	var pods []client.Object
	for i := range 45 {
		pods = append(pods, tenants(func(pod *corev1.Pod) {
			pod.Namespace, pod.UID = fmt.Sprintf("tenant-%02d", i), types.UID(fmt.Sprint(i))
		}))
	}
	e := newEnv(t, pods...)
	e.Expect(e.check()).To(BeZero())
	e.Expect(e.reviews.takeAsked()).To(HaveLen(45))
	var asked []string
	for _, count := range []int{20, 20, 5} {
		e.Expect(e.after(30 * time.Second)).To(BeZero())
		again := e.reviews.takeAsked()
		e.Expect(len(again)).To(BeNumerically(">=", count))
		e.Expect(len(again)).To(BeNumerically("<=", 20))
		asked = append(asked, again[:count]...)
	}
	slices.Sort(asked)
	e.Expect(slices.Compact(asked)).To(HaveLen(45))
}

// Of several that are found, the first by namespace and account counts, so that the finding does not change by chance.
func TestTheFirstOfSeveral(t *testing.T) {
	var pods []client.Object
	for _, namespace := range []string{"b", "a", "c"} {
		for _, account := range []string{"y", "x", "z"} {
			pods = append(pods, tenants(func(pod *corev1.Pod) {
				pod.Namespace, pod.Name, pod.Spec.ServiceAccountName = namespace, account, account
				pod.UID = types.UID(namespace + "/" + account)
			}))
		}
	}
	for range 10 {
		e := newEnv(t, pods...)
		for _, pod := range pods {
			namespace, account := pod.GetNamespace(), pod.GetName()
			e.reviews.allow("system:serviceaccount:"+namespace+":"+account, namespace != "a" || account != "x")
		}
		e.Expect(e.check().Key).To(Equal("a/y"))
	}
}

// A right that is granted while nothing else changes is noticed after a time.
func TestStartAsksAgain(t *testing.T) {
	e := newEnv(t, tenants(nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	e.Eventually(e.watches.Load).Should(BeEquivalentTo(1))
	e.reviews.allow(tenantsUser, true)
	e.clock.Step(30 * time.Second)
	e.Eventually(e.watcher.Events()).Should(Receive())
	e.Expect(e.check().Key).To(Equal("7"))
	cancel()
	e.Eventually(done).Should(Receive(BeNil()))
}

// An account that cannot be reviewed counts as one with rights until it can. A known answer stays.
func TestFailedReviews(t *testing.T) {
	e := newEnv(t, tenants(nil))
	e.reviews.err = errors.New("injected")
	e.Expect(e.check().Key).To(Equal("7"))
	e.Expect(e.after(5 * time.Second).Key).To(Equal("7"))
	e.reviews.err = nil
	e.after(5 * time.Second)
	e.Expect(e.after(10 * time.Second)).To(BeZero())
	e.reviews.err = errors.New("injected")
	e.Expect(e.after(time.Hour)).To(BeZero())
	for _, err := range []error{nil, e.reviews.err} {
		e.reviews.allow(tenantsUser, true)
		e.reviews.err = err
		e.Expect(e.after(time.Hour).Key).To(Equal("7"))
	}
}

// pages answers lists in pages of one pod.
type pages struct {
	client.Reader
	// asked are the page sizes and namespaces that were asked for, and read the first pod of each page.
	asked []client.ListOptions
	read  []weak.Pointer[corev1.Pod]
}

func (p *pages) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	pods, isPods := list.(*corev1.PodList)
	if !isPods {
		return p.Reader.List(ctx, list, options...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	p.asked = append(p.asked, *asked)
	all := &corev1.PodList{}
	if err := p.Reader.List(ctx, all, &client.ListOptions{Namespace: asked.Namespace}); err != nil {
		return err
	}
	first := 0
	if _, err := fmt.Sscan("0"+asked.Continue, &first); err != nil {
		return err
	}
	if first+1 < len(all.Items) {
		pods.Continue = fmt.Sprint(first + 1)
	}
	pods.Items = slices.Clone(all.Items[min(first, len(all.Items)):min(first+1, len(all.Items))])
	if len(pods.Items) > 0 {
		p.read = append(p.read, weak.Make(&pods.Items[0]))
	}
	return nil
}

// Pods are read in pages that fit in memory, however large the pods are, and are not kept. Once one is found, only its
// namespace is read.
func TestReadsPages(t *testing.T) {
	e := newEnv(t, tenants(nil), nvidiasPod(func(pod *corev1.Pod) { pod.Namespace = "u" }),
		nvidiasPod(func(pod *corev1.Pod) { pod.Namespace = "v" }))
	e.reviews.allow("system:serviceaccount:v:gpu-operator", true)
	paged := &pages{Reader: e.client}
	e.watcher.Live = paged
	e.Expect(e.check().Message).To(ContainSubstring("namespace v "))
	e.Expect(paged.asked).To(HaveLen(3))
	heap.Collect()
	for i, page := range paged.read {
		alive := page.Value() != nil
		e.Expect(alive).To(BeFalse(), "page %d", i+1)
	}
	e.Expect(e.after(5 * time.Second).Message).To(ContainSubstring("namespace v "))
	e.Expect(paged.asked).To(HaveLen(4))
	e.Expect(paged.asked[3].Namespace).To(Equal("v"))
	for _, asked := range paged.asked {
		e.Expect(asked.Limit).To(BeNumerically("~", 25, 24))
		e.Expect(asked.LabelSelector.String()).To(Equal("app=gpu-operator,app.kubernetes.io/component=gpu-operator"))
	}
}

// A pod that cannot be NVIDIA's operator costs a list now and then, and none once it is gone; its changes cost nothing.
func TestStartBesideOtherPods(t *testing.T) {
	e := newEnv(t)
	own := nvidiasPod(func(pod *corev1.Pod) {
		pod.Name, pod.UID, pod.Spec.Containers[0].Env = "own", "8", []corev1.EnvVar{{Name: ownVariable}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	e.Eventually(e.watches.Load).Should(BeEquivalentTo(1))
	e.Expect(e.client.Create(t.Context(), own)).To(Succeed())
	pod := tenants(nil)
	e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
	e.Eventually(e.watches.Load).Should(BeEquivalentTo(2))
	e.Expect(e.lists.Load()).To(BeEquivalentTo(3), "pods twice, and policies once")
	pod.Status.Phase = corev1.PodRunning
	e.Expect(e.client.Update(t.Context(), pod)).To(Succeed())
	e.reviews.allow(tenantsUser, true)
	e.clock.Step(30 * time.Second)
	e.Eventually(e.watcher.Events()).Should(Receive())
	e.Expect(e.lists.Load()).To(BeEquivalentTo(4))
	e.Expect(e.check().Key).To(Equal("7"))
	cancel()
	e.Eventually(done).Should(Receive(BeNil()))
}
