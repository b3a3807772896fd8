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
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// missedTime is how long a missing permission may go unnoticed.
const missedTime = 30 * time.Second

// eachIsMissed removes the permissions from the installed roles one by one, and expects that a new operator is then
// denied a request that needs the permission, and no other request, which the check after every test finds.
// TEST_FULL=1 tries all of them, otherwise a sample. The last operator has all permissions again.
func (e *env) eachIsMissed(granted []right, token string) {
	taken := granted
	if !cluster.FullCampaigns() {
		taken = chance.Sample(e.t, "rights", granted, 8, right.String)
	}
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "without\tin\tis denied\tafter\ttotal")
	begin := time.Now()
	for _, r := range taken {
		since := time.Now()
		call, after := e.missed(r, token)
		fmt.Fprintf(columns, "%s\t%s\t%s\t%.1f s\t%.1f s\n", r, scopes[r.role], call, after.Seconds(),
			time.Since(since).Seconds())
	}
	e.Expect(columns.Flush()).To(Succeed())
	e.t.Logf("%d of %d permissions removed, each noticed, in %s\n%s", len(taken), len(granted),
		time.Since(begin).Round(time.Second), table.String())
	log, err := os.ReadFile(e.rightsOptions("").LogFile)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(string(log)).NotTo(ContainSubstring("panic"), "a missing permission is reported as an error")

	e.blank()
	e.process.judged = e.mark()
	e.run(rightsArgs(freeAddress(e.t))...)
	e.create(e.largePolicy())
	e.awaitReady(2)
}

// scopes are the scopes of permissions, by the kind of the role.
var scopes = map[string]string{"ClusterRole": "cluster", "Role": "namespace"}

// missed runs an operator without the permission, and returns its first denied request and the time of it since the
// start.
func (e *env) missed(r right, token string) (cluster.Call, time.Duration) {
	e.t.Helper()
	e.blank()
	restore := e.takeAway(r)
	defer restore()
	e.create(e.largePolicy())
	e.process.judged = e.mark()
	address, env := freeAddress(e.t), ""
	if r.verb == "list" {
		env = listsAsBefore
	}
	begin := time.Now()
	end := e.startUnready(e.rightsOptions(env, rightsArgs(address)...))
	defer end()
	provoke := e.provocation(r, address, token)
	e.Eventually(func() cluster.Calls {
		provoke()
		return e.refused()
	}).WithTimeout(missedTime).WithPolling(50*time.Millisecond).ShouldNot(BeEmpty(), "no request needs %s", r)
	refused := e.refused()
	e.Expect(refused).To(HaveEach(r.isNeededFor()), "without %s", r)
	return refused[0], refused[0].Time.Sub(begin)
}

// isNeededFor matches the requests that need the permission.
func (r right) isNeededFor() gomegatypes.GomegaMatcher {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	verb, name := Equal(r.verb), HavePrefix("")
	if r.name != "" {
		name = Equal(r.name)
	}
	if r.verb == "create" {
		verb = Or(verb, Equal("patch")) // The first apply of an object needs both.
	}
	return And(HaveField("Group", r.group), HaveField("Resource", resource), HaveField("Subresource", subresource),
		HaveField("Verb", verb), HaveField("Name", name))
}

// provocation is repeated until the missing permission is noticed. Most are noticed at the start.
func (e *env) provocation(r right, address, token string) func() {
	switch {
	case slices.Contains(upgradeRights, r.String()):
		return e.onceReady(e.beginUpgrade)
	case r.String() == "nvidia.com/nvidiadrivers/status patch":
		return sync.OnceFunc(func() {
			object := nvidiaDriver("unused", "")
			e.Expect(e.edit(object, func() { object.Spec.Version += "1" })).To(Succeed())
		})
	case r.name == crd.NVIDIADriverName:
		return sync.OnceFunc(func() { e.change(`{"driver": {` + usesDrivers + `}}`) })
	case r.String() == takeOverRight:
		return e.onceReady(e.disownDriver)
	case r.String() == logRight:
		return e.onceReady(func() { e.layoutState(labels.MIGStateFailed) })
	case r.verb == "delete":
		done := false
		return func() {
			if policy := e.policy(); !done && policy.Status.ObservedGeneration == policy.Generation {
				e.change(shrunk)
				done = true
			}
		}
	case r.String() == "events list":
		return sync.OnceFunc(e.refusePods)
	case strings.HasSuffix(r.resource, "reviews"):
		return func() { _, _ = scrape(unverified(), "https://"+address, token) } // Refused, or not served yet.
	default:
		return func() {}
	}
}

// onceReady returns a function that runs do once, as soon as the policy is ready.
func (e *env) onceReady(do func()) func() {
	done := false
	return func() {
		if !done && e.policy().Status.State == v1.StateReady {
			do()
			done = true
		}
	}
}

// startUnready starts an operator that may never become ready, or may exit. The returned function ends it.
func (e *env) startUnready(options cluster.OperatorOptions) func() {
	ctx, cancel := context.WithCancel(e.t.Context())
	started := make(chan *cluster.Operator, 1)
	go func() {
		// The audit log shows what keeps it from becoming ready.
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

// takeAway removes a permission from the installed role, and waits until the API server enforces that. The returned
// function restores it.
func (e *env) takeAway(r right) func() {
	e.t.Helper()
	role, rules := e.installedRole(r.role)
	whole := *rules
	*rules = without(whole, r)
	e.Expect(e.client.Update(e.t.Context(), role)).To(Succeed())
	e.awaitRight(r, false)
	return func() {
		e.t.Helper()
		*rules = whole
		e.Expect(e.client.Update(e.t.Context(), role)).To(Succeed())
		e.awaitRight(r, true)
	}
}

// installedRole returns the role of the operator and its rules.
func (e *env) installedRole(kind string) (role client.Object, rules *[]rbacv1.PolicyRule) {
	e.t.Helper()
	key := client.ObjectKey{Name: account}
	if kind == "Role" {
		key.Namespace = namespace
		own := &rbacv1.Role{}
		role, rules = own, &own.Rules
	} else {
		own := &rbacv1.ClusterRole{}
		role, rules = own, &own.Rules
	}
	e.Expect(e.client.Get(e.t.Context(), key, role)).To(Succeed())
	return role, rules
}

// without returns the rules without one permission.
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

// awaitRight waits until the API server grants or denies the permission to the operator.
func (e *env) awaitRight(r right, wanted bool) {
	e.t.Helper()
	attributes := &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Name: r.name}
	attributes.Resource, attributes.Subresource, _ = strings.Cut(r.resource, "/")
	if r.role == "Role" {
		attributes.Namespace = namespace
	}
	reviews := kubernetes.NewForConfigOrDie(e.cluster.Config).AuthorizationV1().SubjectAccessReviews()
	e.Eventually(func() (bool, error) {
		review, err := reviews.Create(e.t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: operatorUser, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}).WithPolling(20*time.Millisecond).Should(Equal(wanted), "the permission to %s", r)
}

// blank resets the cluster to before the first operator: no policy, no objects of an operator.
func (e *env) blank() {
	e.t.Helper()
	ctx := e.t.Context()
	e.admitPods()
	e.Expect(client.IgnoreNotFound(e.client.Delete(ctx,
		&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}}))).To(Succeed())
	e.dropFinalizers()
	owned := client.HasLabels{labels.Operand}
	for _, kind := range []client.Object{
		&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.Service{}, monitoringObject("ServiceMonitor",
			""), monitoringObject("PrometheusRule", ""),
	} {
		e.Expect(e.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), owned)).To(Succeed())
	}
	e.Expect(e.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	e.Expect(kubernetes.NewForConfigOrDie(e.cluster.Config).CoordinationV1().Leases(namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	e.unlabel(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, labels.PodSecurity())
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		node := &nodes.Items[i]
		e.unlabel(node, slices.DeleteFunc(slices.Collect(maps.Keys(node.Labels)), isNoTrace))
		gone := client.RawPatch(types.StrategicMergePatchType,
			[]byte(`{"status": {"conditions": [{"type": "`+gpuReady+`", "$patch": "delete"}]}}`))
		e.Expect(e.client.Status().Patch(ctx, node, gone)).To(Succeed())
	}
}

// isNoTrace reports whether no operator causes a label of a node.
func isNoTrace(key string) bool {
	return !strings.HasPrefix(key, "nvidia.com/") && !strings.HasPrefix(key,
		labels.AnchorPrefix) || key == labels.MIGCapable
}

// unlabel removes labels.
func (e *env) unlabel(object client.Object, keys []string) {
	e.t.Helper()
	gone := map[string]any{}
	for _, key := range keys {
		gone[key] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": gone}})
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Patch(e.t.Context(), object, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}
