package otheroperator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

const (
	// maxRepeated is how many accounts a list of pods asks about again; those that were asked about longest ago.
	maxRepeated = 20
	// maxAnswers is how many answers are remembered. Other accounts are asked about in each list.
	maxAnswers = 1000
)

// Reviews asks the API server about rights.
type Reviews interface {
	Create(context.Context, *authorizationv1.SubjectAccessReview, metav1.CreateOptions) (
		*authorizationv1.SubjectAccessReview, error)
}

// account is a ServiceAccount.
type account struct{ namespace, name string }

// accountOf returns the account of the pod. Strings of the pod would keep all that was decoded with it.
func accountOf(pod *corev1.Pod) account {
	return account{strings.Clone(pod.Namespace), strings.Clone(cmp.Or(pod.Spec.ServiceAccountName, "default"))}
}

// answer is whether an account may write the status of policies. Its time is zero if it is only assumed.
type answer struct {
	allowed bool
	at      time.Time
}

// choose returns a candidate that is NVIDIA's operator, the first by namespace and account; nil for none. Labels and
// images are no proof, as all who may create pods can set them, and would stop this operator. Each of these is a proof,
// as only administrators can arrange it:
//
//   - the pod is in the namespace of this operator.
//   - its account may write the status of policies, as all installations of NVIDIA's operator permit. That it has not
//     started does not matter: it would write as soon as it has.
//   - it is in the namespace that the status of a policy names as that of its operator. Installers of this operator may
//     have taken over the ClusterRoleBinding of NVIDIA's, which has the same name.
func (w *Watcher) choose(ctx context.Context, candidates map[account]*running) (*running, error) {
	accounts := slices.SortedFunc(maps.Keys(candidates), func(a, b account) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	for _, of := range accounts {
		if of.namespace == w.Namespace {
			return candidates[of], nil
		}
	}
	allowed := w.review(ctx, accounts)
	for _, of := range accounts {
		if allowed[of] {
			return candidates[of], nil
		}
	}
	if len(accounts) == 0 {
		return nil, nil
	}
	namespaces, err := w.policyNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, of := range accounts {
		if slices.Contains(namespaces, of.namespace) {
			return candidates[of], nil
		}
	}
	return nil, nil
}

// review returns which accounts may write the status of policies. It asks about accounts that it has no answer for,
// and about some whose answer is old. If that fails, the answer before counts, or else it is assumed that the account
// may: to wait is safer than to write beside NVIDIA's operator.
func (w *Watcher) review(ctx context.Context, accounts []account) map[account]bool {
	w.mu.Lock()
	before := w.answers
	w.mu.Unlock()
	oldest := slices.SortedStableFunc(slices.Values(accounts), func(a, b account) int {
		return before[a].at.Compare(before[b].at)
	})
	allowed, answers, repeated := map[account]bool{}, map[account]answer{}, 0
	for _, of := range oldest {
		last, known := before[of]
		if !known || !w.isFresh(last) && repeated < maxRepeated {
			if known {
				repeated++
			}
			last = w.ask(ctx, of, last, known)
		}
		allowed[of] = last.allowed
		if len(answers) < maxAnswers {
			answers[of] = last
		}
	}
	w.mu.Lock()
	w.answers = answers
	w.mu.Unlock()
	return allowed
}

// isFresh reports whether an answer need not be asked for again. Rights may be granted after a pod was created.
func (w *Watcher) isFresh(a answer) bool { return w.Clock.Since(a.at) < w.Timing.Interval }

// ask asks the API server whether the account may write the status of policies. Errors of the evaluation do not count:
// RBAC reports each binding without a role as one.
func (w *Watcher) ask(ctx context.Context, of account, last answer, known bool) answer {
	ctx, cancel := context.WithTimeout(ctx, w.Timing.Deadline)
	defer cancel()
	review, err := w.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + of.namespace + ":" + of.name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + of.namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1.GroupVersion.Group, Resource: "clusterpolicies", Subresource: "status", Verb: "update",
			},
		},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		return answer{allowed: review.Status.Allowed, at: w.Clock.Now()}
	case known:
		return last
	}
	log.FromContext(ctx).Error(err, "Failed to check whether a pod like that of NVIDIA's operator may write policies; "+
		"assuming that it may", "namespace", of.namespace, "account", of.name)
	return answer{allowed: true}
}

// policyNamespaces returns the namespaces in which policies have their operator, as their statuses say. A policy that
// cannot be decoded counts, too.
func (w *Watcher) policyNamespaces(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timing.Deadline)
	defer cancel()
	policies := &unstructured.UnstructuredList{}
	policies.SetGroupVersionKind(v1.ClusterPolicyKind)
	if err := w.Live.List(ctx, policies); err != nil {
		return nil, fmt.Errorf("listing policies to find NVIDIA's operator: %w", err)
	}
	var namespaces []string
	for i := range policies.Items {
		if namespace, found, _ := unstructured.NestedString(policies.Items[i].Object, "status", "namespace"); found {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces, nil
}
