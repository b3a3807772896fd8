package invariant

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

// How late the status may be. A node that becomes unready is reported after at most 10 s, and counts as ready until
// then, also for a status that becomes Ready. The rest is a margin for a busy machine.
const (
	becomesLate = 15 * time.Second
	staysLate   = 25 * time.Second
)

// claim is a condition of a policy, and the objects that it covers.
type claim struct {
	condition string
	covers    func(event history.Event) bool
}

// isMade reports whether a policy makes the claim for its current spec.
func (c claim) isMade(policy *v1.ClusterPolicy) bool {
	return policy.DeletionTimestamp == nil && policy.Status.ObservedGeneration == policy.Generation &&
		meta.IsStatusConditionTrue(policy.Status.Conditions, c.condition)
}

// auxiliary are the operands that GPUs do not depend on.
var auxiliary = []string{
	"dcgm", "dcgm-exporter", "gpu-feature-discovery", "mig-manager", "mps-control-daemon", "node-status-exporter",
	"health-agent",
}

func isAuxiliary(event history.Event) bool {
	ds, is := event.Object.(*appsv1.DaemonSet)
	return is && slices.Contains(auxiliary, ds.Labels[labels.Operand])
}

// claims are the conditions that are compared with the objects, Ready first.
var claims = []claim{
	{v1.ConditionReady, func(event history.Event) bool { return !isAuxiliary(event) }},
	{v1.ConditionAuxiliaryReady, isAuxiliary},
}

// truth: a policy that reports Ready while an object is not up to date.
func truth(r *Run, f *found) {
	r.replay(func(_ history.World, event history.Event) {
		if policy, is := event.Object.(*v1.ClusterPolicy); is {
			judgeNumbers(policy, event, f)
		}
	})
	for _, claim := range claims {
		behind := map[history.Key]time.Time{}
		readySince := map[history.Key]time.Time{}
		r.replay(func(world history.World, event history.Event) {
			if claim.covers(event) {
				follow(behind, event)
			}
			if policy, is := event.Object.(*v1.ClusterPolicy); is {
				r.judgeStatus(claim, policy, world, event, behind, readySince, f)
			}
			for key, ready := range readySince {
				r.judgeReady(claim, world, key, ready, event, behind, f)
			}
		})
	}
}

// follow records since when objects have not been up to date.
func follow(behind map[history.Key]time.Time, event history.Event) {
	if event.Gone || !isBehind(event) {
		delete(behind, event.Key)
		return
	}
	if _, was := behind[event.Key]; !was {
		behind[event.Key] = event.At
	}
}

// isBehind reports whether an object of the stack, or a node, does not match a Ready status.
func isBehind(event history.Event) bool {
	switch object := event.Object.(type) {
	case *appsv1.DaemonSet:
		status := object.Status
		return IsOurs(object) &&
			(status.ObservedGeneration < object.Generation || status.NumberAvailable < status.DesiredNumberScheduled ||
				object.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
					status.UpdatedNumberScheduled < status.DesiredNumberScheduled)
	case *corev1.Node:
		return slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == labels.ConditionGPUReady && c.Status == corev1.ConditionFalse && c.Reason != v1.ReasonExcluded
		})
	}
	return false
}

// judgeNumbers checks the numbers in a revision of a policy.
func judgeNumbers(policy *v1.ClusterPolicy, event history.Event, f *found) {
	if policy.Status.ObservedGeneration > policy.Generation {
		f.at(event, "the status is of generation %d, and the current one is %d", policy.Status.ObservedGeneration,
			policy.Generation)
	}
	if summary := policy.Status.NodeSummary; !event.Gone && claims[0].isMade(policy) && summary != nil &&
		summary.Ready < summary.Total {
		f.at(event, "the status is Ready, and %d of %d nodes are", summary.Ready, summary.Total)
	}
}

// judgeStatus checks the claims of a revision of a policy.
func (r *Run) judgeStatus(
	claim claim, policy *v1.ClusterPolicy, world history.World, event history.Event,
	behind, readySince map[history.Key]time.Time, f *found,
) {
	ready := !event.Gone && claim.isMade(policy)
	_, was := readySince[event.Key]
	switch {
	case !ready:
		delete(readySince, event.Key)
	case !was:
		readySince[event.Key] = event.At
		for key, since := range behind {
			if late := r.sighted(since, event.At); late > becomesLate && !podsWork(world, key) {
				f.at(event, "the status becomes %s, and %s has not been for %s", claim.condition, key, late.Round(time.Millisecond))
			}
		}
	}
}

// podsWork reports whether the pods of a DaemonSet are all ready and of its template, so that only its status is
// behind: the DaemonSet controller writes that late on a busy machine.
func podsWork(world history.World, key history.Key) bool {
	ds, is := world[key].(*appsv1.DaemonSet)
	if !is {
		return false
	}
	working := int32(0)
	for _, pod := range history.All[*corev1.Pod](world) {
		if !metav1.IsControlledBy(pod, ds) {
			continue
		}
		same := pod.Annotations[labels.TemplateDigest] == ds.Spec.Template.Annotations[labels.TemplateDigest]
		if !same || !isReady(pod) || pod.DeletionTimestamp != nil {
			return false
		}
		working++
	}
	return working > 0 && working >= ds.Status.DesiredNumberScheduled
}

// judgeReady checks a status that stays Ready.
func (r *Run) judgeReady(
	claim claim, world history.World, key history.Key, ready time.Time, event history.Event,
	behind map[history.Key]time.Time, f *found,
) {
	for object, since := range behind {
		if since.Before(ready) {
			since = ready
		}
		if late := r.sighted(since, event.At); late > staysLate && world[object] != nil {
			f.add(key.String(), event.Version, "the status is "+claim.condition+", and "+object.String()+" has not been for "+
				late.Round(time.Millisecond).String())
		}
	}
}

// invalid: the DaemonSets of an operand that the status reports as Invalid.
func invalid(r *Run, f *found) {
	r.replay(func(world history.World, event history.Event) {
		ds, is := event.Object.(*appsv1.DaemonSet)
		before, was := event.Before.(*appsv1.DaemonSet)
		if !is || !was || !event.Gone && ds.Generation == before.Generation || ds.DeletionTimestamp != nil {
			return
		}
		for _, policy := range history.All[*v1.ClusterPolicy](world) {
			if message, is := invalidBySpec(policy, ds.Labels[labels.Operand]); is && metav1.IsControlledBy(ds, policy) {
				f.at(event, "it changes while the operand is Invalid: %s", message)
			}
		}
	})
}

// invalidBySpec reports whether the status has an operand as Invalid, and why. Objects that the API server refuses
// are also Invalid, as long as it refuses them: their messages say that they are applied, after the block of the spec.
func invalidBySpec(policy *v1.ClusterPolicy, name string) (message string, is bool) {
	if policy.Status.ObservedGeneration != policy.Generation {
		return "", false
	}
	for _, operand := range policy.Status.Operands {
		_, afterBlock, _ := strings.Cut(operand.Message, ": ")
		refused := strings.HasPrefix(operand.Message, "applying ") || strings.HasPrefix(afterBlock, "applying ")
		if operand.Name == name && operand.State == v1.OperandInvalid && !refused {
			return operand.Message, true
		}
	}
	return "", false
}

// privileges: the privileges of a pod on its node. It gets the host network if a policy requests that.
func privileges(r *Run, f *found) {
	asked := map[string]bool{"dcgm-exporter": true}
	r.replay(func(_ history.World, event history.Event) {
		switch object := event.Object.(type) {
		case *v1.ClusterPolicy:
			noteHostNetworks(object, asked)
		case *appsv1.DaemonSet:
			if !IsOurs(object) || event.Gone {
				return
			}
			r.privilegesOf(object, event, f)
			if object.Spec.Template.Spec.HostNetwork && !asked[object.Labels[labels.Operand]] {
				f.at(event, "it has the network of the host")
			}
		}
	})
}

func (r *Run) privilegesOf(ds *appsv1.DaemonSet, event history.Event, f *found) {
	spec := ds.Spec.Template.Spec
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		context := container.SecurityContext
		privileged := context != nil && context.Privileged != nil && *context.Privileged
		if privileged && r.Unprivileged(ds.Labels[labels.Operand], container.Name) {
			f.at(event, "container %s is privileged", container.Name)
		}
	}
}

// operandsOf maps the blocks of the spec that can request the host network to operands.
func operandsOf(block string) []string {
	return map[string][]string{
		"driver": {"driver"}, "toolkit": {"container-toolkit"}, "devicePlugin": {"device-plugin", "mps-control-daemon"},
		"gfd": {"gpu-feature-discovery"}, "validator": {"operator-validator"}, "dcgm": {"dcgm"}, "migManager": {
			"mig-manager",
		},
		"nodeStatusExporter": {"node-status-exporter"},
	}[block]
}

// noteHostNetworks adds the operands for which a policy requests the host network.
func noteHostNetworks(policy *v1.ClusterPolicy, asked map[string]bool) {
	var blocks map[string]struct {
		HostNetwork bool `json:"hostNetwork"`
	}
	// Values that are not objects, such as lists, have no such field and are skipped.
	text, _ := json.Marshal(policy.Spec)
	_ = json.Unmarshal(text, &blocks)
	for name, block := range blocks {
		for _, operand := range operandsOf(name) {
			asked[operand] = asked[operand] || block.HostNetwork
		}
	}
}

// namespaces: an operand in another namespace would not be covered by the policies of the operator's.
func namespaces(r *Run, f *found) {
	r.replay(func(_ history.World, event history.Event) {
		switch event.Kind {
		case history.DaemonSet, history.ConfigMap, history.Service:
			if IsOurs(event.Object) && event.Namespace != r.Namespace {
				f.at(event, "an object of the operator outside its namespace")
			}
		}
	})
}

// bounds: a status of 100 nodes is about 40 KB.
func bounds(r *Run, f *found) {
	const most = 100 << 10
	r.replay(func(_ history.World, event history.Event) {
		policy, is := event.Object.(*v1.ClusterPolicy)
		if !is {
			return
		}
		text, err := json.Marshal(policy.Status)
		if err != nil || len(text) > most {
			f.at(event, "its status has %d bytes", len(text))
		}
	})
}
