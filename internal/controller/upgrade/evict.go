package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// budgetName matches the name of the PodDisruptionBudget in the cause of a rejected eviction.
var budgetName = regexp.MustCompile(`disruption budget (\S+)`)

// severalBudgets is part of the answer of the API server for a pod with more than one PodDisruptionBudget.
const severalBudgets = "more than one PodDisruptionBudget"

// refusal is why the API server does not evict a pod now. varies: an admission webhook or policy has rejected the
// eviction, whose text may differ each time.
type refusal struct {
	text   string
	varies bool
}

// maxRejection is the longest part of another answer of the API server that is reported.
const maxRejection = 80

// evict evicts the pods of a step that are not in their back-off. A rejected eviction is remembered for the next plans.
// One that fails is the last of the pass: each call may take until its deadline, and the other nodes wait for the pass.
func (s *scope) evict(ctx context.Context, step *upgrade.Step) {
	for i := range step.Pods {
		pod := &step.Pods[i]
		if left := s.memory.rejection(pod.UID).Until.Sub(s.Now); left > 0 {
			s.lockAndRequeueAfter(left)
			continue
		}
		evicted := s.call(ctx, step.Node, fmt.Sprintf("evicting pod %s/%s", pod.Namespace, pod.Name),
			func(ctx context.Context) error { return s.sendEviction(ctx, pod) })
		s.memory.forgetWorkload(step.Node)
		if evicted {
			log.FromContext(ctx).V(1).Info("Requested an eviction", "node", step.Node, "namespace", pod.Namespace,
				"pod", pod.Name)
		}
		if s.memory.remaining(step.Node, s.Now) > 0 {
			return
		}
	}
}

// sendEviction evicts a pod. That the API server rejects the eviction is not an error: it may be allowed later.
func (s *scope) sendEviction(ctx context.Context, pod *upgrade.WorkloadPod) error {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := s.Client.SubResource("eviction").Create(ctx, object, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	refused := refusalOf(pod, err)
	if refused == (refusal{}) {
		if err == nil {
			s.memory.forgetRejection(pod.UID)
		}
		return err
	}
	s.memory.reject(pod.UID, refused, s.Now, &s.Timing)
	s.lockAndRequeueAfter(s.memory.rejection(pod.UID).Wait)
	return nil
}

// refusalOf returns why the API server does not evict a pod now, if the error means that: a disruption budget, several
// of them, or an admission webhook. It is empty for a failure of the server.
func refusalOf(pod *upgrade.WorkloadPod, err error) refusal {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil || !errors.As(err, &status):
		return refusal{}
	case apierrors.IsTooManyRequests(err):
		return refusal{text: tooManyRequests(pod, status.Status().Details)}
	case strings.Contains(status.Status().Message, severalBudgets):
		return refusal{text: "several PDBs select it, which the eviction API does not support"}
	case status.Status().Code == http.StatusForbidden || status.Status().Code == http.StatusBadRequest:
		return refusal{text: "eviction rejected: " + text.Truncate(status.Status().Message, maxRejection), varies: true}
	}
	return refusal{}
}

// tooManyRequests returns why a pod is not evicted, from the details of an answer 429. Without the cause of a
// disruption budget the server is overloaded, and the reason is empty.
func tooManyRequests(pod *upgrade.WorkloadPod, details *metav1.StatusDetails) string {
	if details == nil {
		return ""
	}
	for _, cause := range details.Causes {
		if cause.Type != policyv1.DisruptionBudgetCause {
			continue
		}
		budget := "a PDB"
		if name := budgetName.FindStringSubmatch(cause.Message); name != nil {
			budget = fmt.Sprintf("PDB %s/%s", pod.Namespace, strings.TrimSuffix(name[1], "."))
		}
		return budget + " allows 0 disruptions"
	}
	return ""
}

// maxBlocked is how many Events a node has about what blocks its evictions, in one round.
const maxBlocked = 2

// recordBlocked records what blocks the evictions of the nodes, which no transition does: one Event for each cause that
// is new, of the first few of a round.
func (s *scope) recordBlocked(ctx context.Context) {
	for i := range s.cluster.Nodes {
		n := &s.cluster.Nodes[i]
		of, progress := s.observed[n.Name], s.planned.Report.Nodes[n.Name]
		if of == nil || n.Record == nil || !progress.State.InProgress() || progress.Reason != v1.ReasonUpgradeBlocked {
			continue
		}
		if !s.memory.noteBlocked(n.Name, n.Record.Round, progress.Message) {
			continue
		}
		// By the cause rather than by a number, which would begin again after a restart of the operator.
		s.recordBlock(ctx, of.node, progress.Message, fmt.Sprintf("%d blocked: %s", n.Record.Round, progress.Message))
	}
}

func (s *scope) recordBlock(ctx context.Context, node *corev1.Node, message, transition string) {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	s.Events.Record(ctx, events.Event{
		Regarding: nodeReference(node), Type: corev1.EventTypeWarning, Reason: v1.EventDriverUpgrade,
		Message: "the upgrade is blocked: " + message, Transition: transition,
	})
}
