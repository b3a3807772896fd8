package campaign

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/campaign/invariant"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// conclude checks the run.
func (r *run) conclude(ctx context.Context, res *result) {
	limited, cancel := context.WithTimeout(ctx, eventually)
	defer cancel()
	if err := r.watcher.Sync(limited); err != nil {
		res.violations = append(res.violations, "the watcher: "+err.Error())
	}
	r.lock.Lock()
	for _, err := range r.errors {
		res.violations = append(res.violations, "a fault: "+err.Error())
	}
	r.lock.Unlock()
	calls, err := r.cluster.Since(r.mark)
	if err != nil {
		res.violations = append(res.violations, "the audit log: "+err.Error())
	}
	judged := r.judged(calls)
	for _, violation := range invariant.Judge(judged) {
		res.violations = append(res.violations, violation.String())
	}
	if res.state, err = history.StateOf(r.watcher.World(), namespace, tenant); err != nil {
		res.violations = append(res.violations, "the state: "+err.Error())
	}
	res.counts, res.writes, res.reads = history.Counts(judged.Events), judged.Writes, r.operators[0].proxy.Reads()
	if len(res.violations) > 0 {
		policy, _ := r.policy(ctx)
		res.logs = summary(policy) + "\n" + r.unreadyPods() + r.logs()
	}
}

// judged returns the run as input of the invariants.
func (r *run) judged(calls cluster.Calls) *invariant.Run {
	judged := &invariant.Run{
		Begin:         r.watcher.Begin(),
		Events:        r.watcher.Events(),
		Writes:        r.writes(),
		Calls:         calls.By(cluster.ServiceAccountUser(namespace, account)),
		Namespace:     namespace,
		Seeds:         seedKeys(),
		Cordoned:      cordoned,
		MayGo:         r.explained,
		MaxParallel:   r.workload.maxParallel,
		NewDrivers:    r.newDrivers,
		RightsRevoked: r.rights,
		End:           time.Now(),
		Unprivileged:  unprivileged(),
	}
	if r.seedsGo {
		judged.Seeds = nil
	}
	for _, o := range r.operators {
		o.lock.Lock()
		judged.Blind = append(judged.Blind, o.away...)
		o.lock.Unlock()
	}
	for _, a := range r.faults {
		a.lock.Lock()
		if r.blind && !a.began.IsZero() {
			ended := a.ended
			if ended.IsZero() {
				ended = time.Now()
			}
			judged.Blind = append(judged.Blind, invariant.Interval{Begin: a.began, End: ended})
		}
		if len(r.only) > 0 && !a.began.IsZero() {
			judged.Only, judged.Since = r.only, a.began
		}
		a.lock.Unlock()
	}
	return judged
}

// unreadyPods describes the operands' pods that are not ready in the end, with the states of their containers.
func (r *run) unreadyPods() string {
	var text strings.Builder
	for _, object := range r.watcher.World() {
		pod, is := object.(*corev1.Pod)
		if !is || pod.Namespace != namespace || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			continue
		}
		fmt.Fprintf(&text, "pod %s on %s: %s, being deleted: %t\n", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.DeletionTimestamp != nil)
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			fmt.Fprintf(&text, "  %s ready=%t restarts=%d %s\n", c.Name, c.Ready, c.RestartCount, c.State.String())
		}
	}
	return text.String()
}

func (r *run) explained(operand, node string) bool {
	return r.workload.mayGo != nil && r.workload.mayGo(operand, node) || r.mayGo != nil && r.mayGo(operand, node)
}

// stopOperators ends all operators, and returns the problems of their processes.
func (r *run) stopOperators() []string {
	var found []string
	for _, o := range r.operators {
		if o.cancel == nil {
			continue
		}
		if err := o.stop(); err != nil {
			found = append(found, "L8 "+err.Error())
		}
		for _, trouble := range o.trouble(r.exits) {
			found = append(found, "L8 "+trouble)
		}
	}
	return found
}

func (r *run) logs() string {
	var all []string
	for _, o := range r.operators {
		text, err := os.ReadFile(o.log)
		if err != nil {
			text = []byte(err.Error())
		}
		all = append(all, "the end of "+o.log+":\n"+tail(string(text), 15))
	}
	return strings.Join(all, "\n")
}
