package clusterpolicy

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// leftDrivers are the drivers that NVIDIA's operator has left.
type leftDrivers struct {
	// daemonSets are those of NVIDIA's operator, and unowned all driver pods without a controller.
	daemonSets []*appsv1.DaemonSet
	unowned    []*corev1.Pod
	// moves are the pods that are not labelled by this operator yet.
	moves []move
}

// move is a pod of NVIDIA's operator, and the DaemonSet that is to have it.
type move struct {
	pod *corev1.Pod
	to  *appsv1.DaemonSet
}

// annotations are those that mark the pod as up to date, if it has installed what the DaemonSet installs.
func (m *move) annotations() map[string]string {
	if !migrate.SameDriver(&m.pod.Spec, &m.to.Spec.Template.Spec) {
		return nil
	}
	return map[string]string{labels.TemplateDigest: m.to.Spec.Template.Annotations[labels.TemplateDigest]}
}

// handOverDrivers gives the pods of NVIDIA's drivers the labels of the DaemonSets that serve their nodes from now on,
// and returns the driver pods without a controller if it has read them. It must not happen that a pod belongs to no
// DaemonSet while one selects its node, which would create a second pod, or that a pod matches a DaemonSet which does
// not select its node, which would adopt and delete it. So unless NVIDIA's only DaemonSet becomes one of this operator
// as it is, all of NVIDIA's are deleted first, without their pods; then the pods are labelled; then the DaemonSets are
// created, each of which selects the nodes of its pods.
func (s *scope) handOverDrivers(ctx context.Context, rendered []*appsv1.DaemonSet) ([]*corev1.Pod, error) {
	search, err := s.mayHaveTheirDrivers(ctx, rendered)
	if err != nil || !search {
		return nil, err
	}
	s.driversTakenOver = false
	left, err := s.leftDrivers(ctx, rendered)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	if left.mustBeOrphaned(rendered) {
		return nil, s.orphanDrivers(ctx, left)
	}
	for _, m := range left.moves {
		if err := s.Applier.Relabel(ctx, m.pod, m.to.Spec.Template.Labels, m.annotations()); err != nil {
			return nil, err
		}
		// The answer of the API server is the whole pod.
		m.pod.ManagedFields, m.pod.Status = nil, corev1.PodStatus{}
	}
	s.driversTakenOver = left.isNothing()
	return left.unowned, nil
}

// mayHaveTheirDrivers reports whether drivers of NVIDIA's operator may be left, or a DaemonSet that was taken over may
// have a pod that was created just before. Where all pods are up to date, no pod is read.
func (s *scope) mayHaveTheirDrivers(ctx context.Context, rendered []*appsv1.DaemonSet) (bool, error) {
	if !s.driversTakenOver {
		return true, nil
	}
	var outdated []types.UID
	for _, ds := range rendered {
		live := s.snapshot.DaemonSets[ds.Name]
		switch {
		case live == nil:
		case s.isNVIDIAs(live):
			return true, nil
		case live.Status.UpdatedNumberScheduled < live.Status.CurrentNumberScheduled ||
			live.Status.ObservedGeneration != live.Generation:
			outdated = append(outdated, live.UID)
		}
	}
	if len(outdated) == 0 {
		return false, nil
	}
	return observe.HasUnlabelledPod(ctx, s.Client, s.Namespace, outdated)
}

// leftDrivers reads what NVIDIA's operator has left: first the DaemonSets, so that without any the list of pods is
// complete. It fails if a pod of it cannot be taken over yet.
func (s *scope) leftDrivers(ctx context.Context, rendered []*appsv1.DaemonSet) (*leftDrivers, error) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	all, err := observe.DriverDaemonSets(readCtx, s.Live, s.Namespace)
	if err != nil {
		return nil, err
	}
	left := &leftDrivers{}
	var owners []types.UID
	for _, ds := range all {
		theirs := s.isNVIDIAs(ds)
		if theirs {
			left.daemonSets = append(left.daemonSets, ds)
		}
		if theirs || slices.ContainsFunc(rendered, func(r *appsv1.DaemonSet) bool { return r.Name == ds.Name }) {
			owners = append(owners, ds.UID)
		}
	}
	var theirs []*corev1.Pod
	err = observe.EachDriverPod(ctx, s.Live, s.Timing.Deadline, s.Namespace, func(pod *corev1.Pod) {
		unowned, isTheirs := metav1.GetControllerOfNoCopy(pod) == nil, migrate.IsDriverPod(owners, pod)
		if !unowned && !isTheirs {
			return
		}
		kept := &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
		kept.ManagedFields = nil
		if unowned {
			left.unowned = append(left.unowned, kept)
		}
		if isTheirs {
			theirs = append(theirs, kept)
		}
	})
	if err != nil {
		return nil, err
	}
	left.moves, err = s.moves(theirs, rendered)
	return left, err
}

// moves returns the pods, which are of NVIDIA's drivers, with their DaemonSets.
func (s *scope) moves(pods []*corev1.Pod, rendered []*appsv1.DaemonSet) ([]move, error) {
	pools := map[string]string{}
	for facts := range s.view.EachFacts() {
		pools[facts.Name] = facts.Pool
	}
	var found []move
	for _, pod := range pods {
		node := observe.PodNode(pod)
		at := slices.IndexFunc(rendered, func(ds *appsv1.DaemonSet) bool {
			return pools[node] != "" && ds.Spec.Template.Labels[labels.Pool] == pools[node]
		})
		if at < 0 {
			return nil, notTakenOver("the drivers of NVIDIA's operator are kept as they are: pod %s is on node %s, whose "+
				"driver pool (%q) has no DaemonSet", pod.Name, node, pools[node])
		}
		found = append(found, move{pod: pod, to: rendered[at]})
	}
	return found, nil
}

// mustBeOrphaned reports whether NVIDIA's DaemonSets have to be deleted without their pods. Otherwise the only one
// becomes one of this operator as it is, because it has the same name and keeps all pods.
func (l *leftDrivers) mustBeOrphaned(rendered []*appsv1.DaemonSet) bool {
	if len(l.daemonSets) != 1 {
		return len(l.daemonSets) > 0
	}
	only := l.daemonSets[0]
	return only.DeletionTimestamp != nil ||
		!slices.ContainsFunc(rendered, func(ds *appsv1.DaemonSet) bool { return ds.Name == only.Name }) ||
		slices.ContainsFunc(l.moves, func(m move) bool { return m.to.Name != only.Name })
}

// isNothing reports whether all drivers were taken over, and have their DaemonSets.
func (l *leftDrivers) isNothing() bool {
	return len(l.daemonSets) == 0 && len(l.moves) == 0 && !slices.ContainsFunc(l.unowned, func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp == nil
	})
}

// orphanDrivers deletes NVIDIA's DaemonSets without their pods. It returns an error, as they are not gone at once.
func (s *scope) orphanDrivers(ctx context.Context, left *leftDrivers) error {
	if err := s.Applier.Orphan(ctx, left.daemonSets); err != nil {
		return err
	}
	s.requeueAfter(s.Timing.RetryHandOver)
	var names []string
	for _, ds := range left.daemonSets {
		names = append(names, ds.Name)
	}
	return notTakenOver("driver DaemonSets of NVIDIA's operator are being deleted without their pods, which get others: "+
		"%s", strings.Join(names, ", "))
}

// keepScript makes the start-up probe of NVIDIA's drivers belong to the policy instead of an NVIDIADriver object: the
// pods mount it for as long as they run, and the object may be deleted before.
func (s *scope) keepScript(ctx context.Context) {
	if len(s.drivers) == 0 || s.driversTakenOver {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	script := &metav1.PartialObjectMetadata{}
	script.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: labels.ProbeScript}, script)
	if err != nil {
		s.fail(client.IgnoreNotFound(err))
		return
	}
	owner := render.OwnerReference(render.Owner{Name: s.policy.Name, UID: string(s.policy.UID)})
	if s.isNVIDIAs(script) && metav1.GetControllerOfNoCopy(script).UID != owner.UID {
		s.fail(s.Applier.ReplaceOwner(ctx, script, owner))
	}
}

// addLeftPods adds that the drivers of NVIDIA's operator mount its start-up probe, which then stays.
func (s *scope) addLeftPods(ctx context.Context, live map[string]rollout.Live) error {
	if s.driversTakenOver {
		return nil
	}
	return observe.EachDriverPod(ctx, s.Live, s.Timing.Deadline, s.Namespace, func(pod *corev1.Pod) {
		if rollout.LivePod(pod).NeedsProbeScript {
			live[pod.Name] = rollout.Live{NeedsProbeScript: true}
		}
	})
}
