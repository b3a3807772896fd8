package upgrade

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// An eviction that the API server rejects is tried again; any other error is a failure of the call.
func TestWhyAnEvictionIsRejected(t *testing.T) {
	answer := func(code int32, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: message, Details: &metav1.StatusDetails{Causes: causes},
		}}
	}
	budget := func(message string) metav1.StatusCause {
		return metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message}
	}
	other := metav1.StatusCause{Type: "Other", Message: "The disruption budget other is not the cause"}
	withoutDetails := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 429}}
	const evicts = "The disruption budget web needs 2 healthy pods and has 2 currently"
	const ofBudget = "PDB team-a/web allows 0 disruptions"
	long, cut := strings.Repeat("a", 81), strings.Repeat("a", 77)+"..."
	for name, test := range map[string]struct {
		err error
		// want is empty for an error that is no rejection.
		want string
	}{
		"none":                             {nil, ""},
		"no answer":                        {errors.New("connection refused"), ""},
		"a budget":                         {answer(429, "x", budget(evicts)), ofBudget},
		"a budget among other causes":      {answer(429, "x", other, budget(evicts)), ofBudget},
		"a budget that is not observed":    {answer(429, "x", budget("disruption budget web.")), ofBudget},
		"a budget without its name":        {answer(429, "x", budget("it needs 2 pods")), "a PDB allows 0 disruptions"},
		"a server that has too many calls": {answer(429, "too many requests"), ""},
		"one that says no more":            {withoutDetails, ""},
		"several budgets": {
			answer(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
			"several PDBs select it, which the eviction API does not support",
		},
		"a failure of the server":              {answer(500, "internal error"), ""},
		"a pod that is gone":                   {answer(404, "not found"), ""},
		"a policy or webhook":                  {answer(403, "not on Mondays"), "eviction rejected: not on Mondays"},
		"a policy or webhook, as bad":          {answer(400, "not now"), "eviction rejected: not now"},
		"a policy or webhook with a long text": {answer(403, long), "eviction rejected: " + cut},
	} {
		t.Run(name, func(t *testing.T) {
			refused := refusalOf(&upgrade.WorkloadPod{Namespace: "team-a", Name: "web-1"}, test.err)
			if refused.text != test.want || refused.varies != strings.HasPrefix(name, "a policy or webhook") {
				t.Errorf("got %+v, want %q", refused, test.want)
			}
		})
	}
}

// Pods are evicted and deleted by their UID, so that another one with the name stays, and the slots by their version:
// another manager may have given one meanwhile.
func TestDeletionsNameWhatWasRead(t *testing.T) {
	g := NewWithT(t)
	var sent []string
	note := func(what string, object client.Object, of *metav1.Preconditions) {
		g.Expect(of).NotTo(BeNil(), what)
		sent = append(sent, strings.TrimSpace(fmt.Sprintf("%s %s/%s uid %s %s", what, object.GetNamespace(), object.GetName(),
			ptr.Deref(of.UID, "unknown"), ptr.Deref(of.ResourceVersion, ""))))
	}
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(
			_ context.Context, _ client.Client, sub string, object, body client.Object, _ ...client.SubResourceCreateOption,
		) error {
			g.Expect(client.ObjectKeyFromObject(body)).To(Equal(client.ObjectKeyFromObject(object)))
			eviction, is := body.(*policyv1.Eviction)
			g.Expect(is && eviction.DeleteOptions != nil).To(BeTrue())
			note(sub, object, eviction.DeleteOptions.Preconditions)
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			note("delete", object, (&client.DeleteOptions{}).ApplyOptions(options).Preconditions)
			return nil
		},
	})
	s := &scope{Reconciler: New(Options{Client: c, Namespace: "ns", Timing: DefaultTiming()})}
	g.Expect(s.sendEviction(t.Context(), &upgrade.WorkloadPod{Namespace: "team-a", Name: "web", UID: "1"})).To(Succeed())
	s.deletePods(t.Context(), &upgrade.Step{Node: "a", Pods: []upgrade.WorkloadPod{{Name: "driver", UID: "2"}}})
	pull := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull", UID: "3"}}
	g.Expect(s.discardPull(t.Context(), pull)).To(MatchError(ContainSubstring("its labels were changed")))
	s.slots = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "slots", UID: "4", ResourceVersion: "7",
	}}
	g.Expect(s.sendSlots(t.Context(), nil)).To(Succeed())
	g.Expect(sent).To(Equal([]string{
		"eviction team-a/web uid 1", "delete ns/driver uid 2", "delete ns/pull uid 3", "delete ns/slots uid 4 7",
	}))
}

// All pods of a step are evicted in one pass. The first call that fails is its last: the others may take as long.
func TestAllPodsOfAStepAreEvicted(t *testing.T) {
	broken := errors.New("connection refused")
	rejected := apierrors.NewForbidden(corev1.Resource("pods"), "one", errors.New("not on Mondays"))
	for name, test := range map[string]struct {
		answer error
		want   []string
	}{
		"which are evicted":      {nil, []string{"one", "two"}},
		"of which one is not":    {rejected, []string{"one", "two"}},
		"and nothing can be":     {broken, []string{"one"}},
		"while the server fails": {apierrors.NewInternalError(broken), []string{"one"}},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{SubResourceCreate: func(
				_ context.Context, _ client.Client, _ string, object, _ client.Object, _ ...client.SubResourceCreateOption,
			) error {
				if sent = append(sent, object.GetName()); object.GetName() == "one" {
					return test.answer
				}
				return nil
			}})
			timing := DefaultTiming()
			s := &scope{
				Reconciler: New(Options{Client: c, Fleet: fleet.New(), Timing: timing}),
				Pass:       allnodes.Pass{Delays: &timing.Delays, Now: time.Unix(1000, 0)},
			}
			s.evict(t.Context(), &upgrade.Step{Node: "a", Pods: []upgrade.WorkloadPod{
				{Namespace: "n", Name: "one", UID: "1"}, {Namespace: "n", Name: "two", UID: "2"},
			}})
			NewWithT(t).Expect(sent).To(Equal(test.want))
		})
	}
}

// Only a block of an upgrade that is in progress is an Event.
func TestWhichBlocksAreRecorded(t *testing.T) {
	blocked := upgrade.Progress{State: upgrade.StateDrain, Reason: v1.ReasonUpgradeBlocked, Message: "a PDB"}
	for name, test := range map[string]struct {
		change func(*upgrade.Progress)
		record *upgrade.Record
		seen   bool
		want   int
	}{
		"blocked":          {record: &upgrade.Record{Round: 1}, seen: true, want: 1},
		"without a record": {seen: true},
		"not observed":     {record: &upgrade.Record{Round: 1}},
		"for another reason": {func(p *upgrade.Progress) { p.Reason = v1.ReasonUpgradePending },
			&upgrade.Record{Round: 1}, true, 0},
		"not in progress": {func(p *upgrade.Progress) { p.State = upgrade.StateFailed },
			&upgrade.Record{Round: 1}, true, 0},
		"neither one nor that": {func(p *upgrade.Progress) { *p = upgrade.Progress{} },
			&upgrade.Record{Round: 1}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			progress := blocked
			if test.change != nil {
				test.change(&progress)
			}
			u := newUnit(t, interceptor.Funcs{})
			u.cluster.Nodes = []upgrade.Node{{Name: "a", Record: test.record}}
			if test.seen {
				u.observed["a"] = &observed{node: node(nil)}
			}
			u.planned.Report.Nodes = map[string]upgrade.Progress{"a": progress}
			u.recordBlocked(u.ctx)
			u.expectEvents([]events.Event{{
				Regarding: nodeReference(node(nil)), Type: "Warning", Reason: "GPUDriverUpgrade",
				Message: "the upgrade is blocked: a PDB", Transition: "1 blocked: a PDB",
			}}[:test.want]...)
		})
	}
}
