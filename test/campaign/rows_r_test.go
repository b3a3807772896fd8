package campaign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

func admissionRows() []row {
	const long = 10 * time.Second
	plugin := options{mayGo: ofOperand("device-plugin"), counts: true}
	return []row{
		{
			id: "R1", what: "an admission policy temporarily refuses one DaemonSet, or all writes to nodes", sample: 1,
			points: fixed(
				point{name: "I/daemonset", workload: install, options: options{during: reportsFailedCalls}, faults: []Fault{
					{
						When: When{Moment: Start}, What: forbids("daemonsets", "apps", "object.metadata.name == '"+pluginName+"'"),
						For: long,
					},
				}},
				point{name: "I/nodes", workload: install, faults: []Fault{
					{When: When{Moment: Start}, What: forbids("nodes", "", "true"), For: long},
				}},
				point{name: "G/daemonset", workload: specChange, options: options{during: reportsFailedCalls}, faults: []Fault{
					{
						When: When{Moment: Ready}, What: forbids("daemonsets", "apps", "object.metadata.name == '"+pluginName+"'"),
						For: long,
					},
				}},
			)},
		{id: "R2", what: "Pod Security temporarily refuses the pods of the namespace", sample: 1, points: fixed(
			point{name: "rest/restricted", workload: rest, options: plugin, faults: []Fault{
				{When: When{Moment: Ready}, What: podSecurity("restricted"), For: long},
				{When: When{Moment: Ready}, What: Actor{Does: losesPod(v1.ReasonPodSecurityDenied)}},
			}},
		)},
		{id: "R3", what: "a quota temporarily refuses pods", sample: 1, points: fixed(
			point{name: "rest/pods", workload: rest, options: plugin, faults: []Fault{
				{When: When{Moment: Ready}, What: quota, For: long},
				{When: When{Moment: Ready}, What: Actor{Does: losesPod(v1.ReasonQuotaExceeded)}},
			}},
		)},
		{id: "R4", what: "the namespace is deleted, and reinstalled", sample: 1, points: fixed(
			point{name: "rest/namespace", workload: rest, options: options{
				exits: true, rights: true, spoils: true, differs: true, counts: true, blind: true, mayGo: everything, seedsGo: true,
			}, faults: []Fault{{When: When{Moment: Ready}, What: Actor{Does: replaceNamespace}}}},
		)},
		elsewhere("R5", "each permission is removed, and restored", "TestEachRightIsNeeded (test/integration)"),
		{id: "R6", what: "the operator's token is refused for some seconds", sample: 1, points: fixed(
			point{
				name: "I", workload: install, options: options{exits: true, blind: true}, faults: []Fault{unauthorized(Created)},
			},
			point{
				name: "G", workload: specChange, options: options{exits: true, blind: true}, faults: []Fault{unauthorized(Ready)},
			},
		)},
		leftOut("R7", "API Priority and Fairness limits the operator to one seat",
			"for the operator it is latency and 429, which C1 and C3 cover; seats are not scarce on such a small cluster"),
	}
}

// forbids returns an admission policy that refuses writes of the operator.
func forbids(what, group, condition string) Actor {
	const name = "campaign-forbids"
	refuses := func() *admissionv1.ValidatingAdmissionPolicy {
		rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{what, what + "/status"},
			},
		}}
		return &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
				Validations: []admissionv1.Validation{{
					Expression: fmt.Sprintf("request.userInfo.username != 'system:serviceaccount:%s:%s' || !(%s)", namespace, account,
						condition),
					Message: "refused by the campaign",
				}},
			}}
	}
	binding := func() *admissionv1.ValidatingAdmissionPolicyBinding {
		return &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}}
	}
	return Actor{
		Does: func(ctx context.Context, r *run) error {
			if err := errors.Join(r.quiet.Create(ctx, refuses()), r.quiet.Create(ctx, binding())); err != nil {
				return err
			}
			return pauseFor(ctx, 2*time.Second)
		},
		Back: func(ctx context.Context, r *run) error {
			return errors.Join(r.quiet.Delete(ctx, binding()), r.quiet.Delete(ctx, refuses()))
		},
	}
}

// pauseFor waits for what cannot be observed: an admission policy is enforced some time after its creation.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func podSecurity(level string) Actor {
	label := func(value string) func(context.Context, *run) error {
		return func(ctx context.Context, r *run) error {
			return r.patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
				fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, labels.PodSecurity()[0], value))
		}
	}
	return Actor{Does: label(`"` + level + `"`), Back: label(`"` + labels.PodSecurityPrivileged + `"`)}
}

var quota = Actor{
	Does: func(ctx context.Context, r *run) error {
		q := campaignQuota()
		q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
		if err := r.quiet.Create(ctx, q); err != nil {
			return err
		}
		return r.awaitWithin(ctx, eventually, "the quota to count", func() error {
			if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
				return err
			}
			if q.Status.Used.Pods().IsZero() {
				return errors.New("it does not")
			}
			return nil
		})
	},
	Back: func(ctx context.Context, r *run) error { return r.quiet.Delete(ctx, campaignQuota()) },
}

func campaignQuota() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "campaign"}}
}

// losesPod deletes a pod that cannot be re-created, and waits until the status of its node reports why.
func losesPod(reason string) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		pods := &corev1.PodList{}
		err := r.quiet.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{labels.Operand: "device-plugin"})
		if err != nil || len(pods.Items) == 0 {
			return errors.Join(errors.New("the device plugin has no pod"), err)
		}
		if err := r.quiet.Delete(ctx, &pods.Items[0], client.GracePeriodSeconds(0)); err != nil {
			return err
		}
		return r.awaitWithin(ctx, truthTime, "the status to report "+reason, func() error {
			policy, err := r.policy(ctx)
			if err != nil {
				return err
			}
			for _, node := range policy.Status.Nodes {
				if node.Reason == reason {
					return nil
				}
			}
			return fmt.Errorf("L6 no node has the reason %s", reason)
		})
	}
}

// replaceNamespace deletes the namespace with all its objects, and reinstalls it.
func replaceNamespace(ctx context.Context, r *run) error {
	if err := r.quiet.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	if err := r.awaitWithin(ctx, 2*convergeTime, "the namespace to be deleted", func() error {
		return mustBeGone(r.quiet.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}))
	}); err != nil {
		return err
	}
	if err := r.install(ctx); err != nil {
		return err
	}
	o := r.operators[0]
	kubeconfig, err := r.cluster.ServiceAccountKubeconfig(ctx, namespace, account, o.front.URL)
	if err != nil {
		return err
	}
	o.lock.Lock()
	o.options.Kubeconfig = kubeconfig
	o.lock.Unlock()
	// Its ServiceAccount is a new one, as a pod in the namespace would be.
	o.kill()
	return nil
}

// mustBeGone returns an error if a read has found the object.
func mustBeGone(found error) error {
	if found == nil {
		return errors.New("it exists")
	}
	return client.IgnoreNotFound(found)
}

func unauthorized(moment Moment) Fault {
	return Fault{When: When{Moment: moment}, For: 6 * time.Second, What: API{
		{Match: fault.Match{Verbs: fault.Writes()}, Action: fault.Action{Status: http.StatusUnauthorized}},
		{Match: fault.Match{Verbs: fault.Reads()}, Action: fault.Action{Status: http.StatusUnauthorized}},
		{Match: watches(watched...), Stream: fault.Stream{Cut: time.Second}},
	}}
}
