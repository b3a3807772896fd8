package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// missedTime is how long an operator without a right may go on unnoticed.
const missedTime = 30 * time.Second

// sampleRights are those that are taken away unless TEST_FULL=1: each is missed in a way of its own.
var sampleRights = []string{
	"image.openshift.io/imagestreams list", "nodes/status patch", "apps/daemonsets create", "configmaps delete",
	"authentication.k8s.io/tokenreviews create",
}

// eachIsMissed takes one right after the other out of the installed roles, and expects that an operator which
// starts anew is then refused a call that needs it, and no other call: what the judgement after every story
// finds. TEST_FULL=1 tries all of them, otherwise a fixed sample. The last operator has all its rights again.
func (b *bed) eachIsMissed(granted []right, token string) {
	taken := granted
	if !cluster.FullCampaigns() {
		taken = slices.DeleteFunc(slices.Clone(granted), func(r right) bool { return !slices.Contains(sampleRights, r.String()) })
		b.Expect(taken).To(HaveLen(len(sampleRights)), "the sample is of the shipped rights")
	}
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "without\tin\tis refused\tafter\tthe whole took")
	begin := time.Now()
	for _, r := range taken {
		since := time.Now()
		call, after := b.missed(r, token)
		fmt.Fprintf(columns, "%s %s\t%s\t%s\t%.1f s\t%.1f s\n", r, r.name, scopes[r.role], call, after.Seconds(), time.Since(since).Seconds())
	}
	b.Expect(columns.Flush()).To(Succeed())
	b.t.Logf("%d of %d rights taken away, each noticed, in %s\n%s", len(taken), len(granted), time.Since(begin).Round(time.Second), table.String())
	log, err := os.ReadFile(b.rightsOptions("").LogFile)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(log)).NotTo(ContainSubstring("panic"), "who lacks a right says so")

	b.blank()
	b.process.judged = b.mark()
	b.run(rightsArgs(freeAddress(b.t))...)
	b.create(b.largePolicy())
	b.awaitReady(2)
}

// scopes name where a right of a role holds.
var scopes = map[string]string{"ClusterRole": "cluster", "Role": "namespace"}

// missed runs an operator without the right, and returns the first of its calls that was refused and when, from
// its start on.
func (b *bed) missed(r right, token string) (cluster.Call, time.Duration) {
	b.t.Helper()
	b.blank()
	restore := b.takeAway(r)
	defer restore()
	b.create(b.largePolicy())
	b.process.judged = b.mark()
	address, env := freeAddress(b.t), ""
	if r.verb == "list" {
		env = listsAsBefore
	}
	begin := time.Now()
	end := b.startUnready(b.rightsOptions(env, rightsArgs(address)...))
	defer end()
	provoke := b.provocation(r, address, token)
	b.Eventually(func() cluster.Calls {
		provoke()
		return b.refused()
	}).WithTimeout(missedTime).WithPolling(50*time.Millisecond).ShouldNot(BeEmpty(), "nobody misses %s", r)
	refused := b.refused()
	b.Expect(refused).To(HaveEach(r.isNeededFor()), "without %s", r)
	return refused[0], refused[0].Time.Sub(begin)
}

// isNeededFor matches the calls that need the right.
func (r right) isNeededFor() gomegatypes.GomegaMatcher {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	verb := Equal(r.verb)
	if r.verb == "create" {
		verb = Or(verb, Equal("patch")) // What is applied for the first time needs both.
	}
	return And(HaveField("Group", r.group), HaveField("Resource", resource), HaveField("Subresource", subresource), HaveField("Verb", verb))
}

// provocation is what is done again and again until the right is missed. Most are missed at the start.
func (b *bed) provocation(r right, address, token string) func() {
	switch {
	case r.verb == "delete":
		done := false
		return func() {
			if policy := b.policy(); !done && policy.Status.ObservedGeneration == policy.Generation {
				b.change(shrunk)
				done = true
			}
		}
	case r.String() == "events list":
		return sync.OnceFunc(b.refusePods)
	case strings.HasSuffix(r.resource, "reviews"):
		return func() { _, _ = scrape(unverified(), "https://"+address, token) } // Refused, or not served yet.
	default:
		return func() {}
	}
}

// startUnready starts an operator that may never become ready, or end. The function that it returns ends it.
func (b *bed) startUnready(options cluster.OperatorOptions) func() {
	ctx, cancel := context.WithCancel(b.t.Context())
	started := make(chan *cluster.Operator, 1)
	go func() {
		// What keeps it from becoming ready is seen in the audit log.
		operator, _ := cluster.StartOperator(ctx, options)
		started <- operator
	}()
	return func() {
		cancel()
		if operator := <-started; operator != nil {
			operator.Kill()
		}
	}
}

// takeAway takes a right out of the installed role, and waits until the API server heeds that. The function that
// it returns gives it back.
func (b *bed) takeAway(r right) func() {
	b.t.Helper()
	role, rules := b.installedRole(r.role)
	whole := *rules
	*rules = without(whole, r)
	b.Expect(b.client.Update(b.t.Context(), role)).To(Succeed())
	b.awaitRight(r, false)
	return func() {
		b.t.Helper()
		*rules = whole
		b.Expect(b.client.Update(b.t.Context(), role)).To(Succeed())
		b.awaitRight(r, true)
	}
}

// installedRole is the role of the operator, and where its rules are.
func (b *bed) installedRole(kind string) (role client.Object, rules *[]rbacv1.PolicyRule) {
	b.t.Helper()
	key := client.ObjectKey{Name: account}
	if kind == "Role" {
		key.Namespace = namespace
		own := &rbacv1.Role{}
		role, rules = own, &own.Rules
	} else {
		own := &rbacv1.ClusterRole{}
		role, rules = own, &own.Rules
	}
	b.Expect(b.client.Get(b.t.Context(), key, role)).To(Succeed())
	return role, rules
}

// without are the rules less one right.
func without(rules []rbacv1.PolicyRule, r right) []rbacv1.PolicyRule {
	var left []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			narrow := *rule.DeepCopy()
			narrow.Resources = []string{resource}
			if rule.APIGroups[0] == r.group && resource == r.resource && strings.Join(rule.ResourceNames, "") == r.name {
				narrow.Verbs = slices.DeleteFunc(narrow.Verbs, func(verb string) bool { return verb == r.verb })
			}
			if len(narrow.Verbs) > 0 {
				left = append(left, narrow)
			}
		}
	}
	return left
}

// awaitRight waits until the API server says that the operator has the right, or has it not.
func (b *bed) awaitRight(r right, wanted bool) {
	b.t.Helper()
	attributes := &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Name: r.name}
	attributes.Resource, attributes.Subresource, _ = strings.Cut(r.resource, "/")
	if r.role == "Role" {
		attributes.Namespace = namespace
	}
	reviews := kubernetes.NewForConfigOrDie(b.cluster.Config).AuthorizationV1().SubjectAccessReviews()
	b.Eventually(func() (bool, error) {
		review, err := reviews.Create(b.t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: operatorUser, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}).WithPolling(20*time.Millisecond).Should(Equal(wanted), "the right to %s", r)
}

// blank takes the cluster back to before the first operator: no policy, nothing that an operator has made.
func (b *bed) blank() {
	b.t.Helper()
	ctx := b.t.Context()
	b.admitPods()
	b.Expect(client.IgnoreNotFound(b.client.Delete(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}))).To(Succeed())
	owned := client.HasLabels{labels.Operand}
	for _, kind := range []client.Object{
		&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}, monitoringObject("ServiceMonitor", ""), monitoringObject("PrometheusRule", ""),
	} {
		b.Expect(b.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), owned)).To(Succeed())
	}
	b.Expect(b.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	b.Expect(kubernetes.NewForConfigOrDie(b.cluster.Config).CoordinationV1().Leases(namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	b.unlabel(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, labels.PodSecurity())
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		node := &nodes.Items[i]
		b.unlabel(node, slices.DeleteFunc(slices.Collect(maps.Keys(node.Labels)), isNoTrace))
		gone := client.RawPatch(types.StrategicMergePatchType, []byte(`{"status": {"conditions": [{"type": "`+gpuReady+`", "$patch": "delete"}]}}`))
		b.Expect(b.client.Status().Patch(ctx, node, gone)).To(Succeed())
	}
}

// isNoTrace reports whether a label of a node is none that an operator leads to.
func isNoTrace(key string) bool {
	return !strings.HasPrefix(key, "nvidia.com/") && !strings.HasPrefix(key, labels.AnchorPrefix) || key == labels.MIGCapable
}

// unlabel takes labels off.
func (b *bed) unlabel(object client.Object, keys []string) {
	b.t.Helper()
	gone := map[string]any{}
	for _, key := range keys {
		gone[key] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": gone}})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.client.Patch(b.t.Context(), object, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}
