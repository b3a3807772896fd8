package clusterpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/migrate"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// takeOver prepares the DaemonSets that NVIDIA's operator has left and that select fewer nodes from now on. Until
// nothing can be lost by applying an operand's DaemonSets, they are left out of this pass, and the status has the reason.
func (s *scope) takeOver(ctx context.Context) {
	for _, step := range s.planned.Steps {
		o := &step.Operand
		rendered := s.renderedDaemonSets(o.Name)
		if o.DaemonSet == "" || len(rendered) == 0 {
			continue
		}
		ready, err := s.handOver(ctx, o, rendered)
		if err != nil {
			s.applied[o.Name] = status.ApplyResult{Err: err}
		}
		if !errors.Is(err, status.ErrNotTakenOver) {
			s.fail(err) // No event follows.
		}
		s.replaceDaemonSets(o.Name, ready)
	}
}

// replaceDaemonSets replaces the rendered DaemonSets of an operand.
func (s *scope) replaceDaemonSets(name operand.Name, by []*appsv1.DaemonSet) {
	objects := slices.DeleteFunc(slices.Clone(s.objects[name]), func(object manifest.Object) bool {
		_, isDaemonSet := object.(*appsv1.DaemonSet)
		return isDaemonSet
	})
	for _, ds := range by {
		objects = append(objects, ds)
	}
	s.objects[name] = objects
}

func (s *scope) renderedDaemonSets(name operand.Name) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	for _, object := range s.objects[name] {
		if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
			found = append(found, ds)
		}
	}
	return found
}

// handOver returns the DaemonSets of an operand with variants as they are to be applied, or an error if they cannot be
// applied yet. NVIDIA's selects nodes by the deploy label alone, and the DaemonSet controller deletes the pods of nodes
// that stop matching. So first each node gets the labels of its variant.
func (s *scope) handOver(
	ctx context.Context, o *operand.Operand, rendered []*appsv1.DaemonSet,
) ([]*appsv1.DaemonSet, error) {
	base := s.snapshot.DaemonSets[o.DaemonSet]
	theirs := base != nil && migrate.IsNVIDIAs(s.policy.UID, base)
	if node := s.nodeWithoutAnchor(o); theirs && node != "" {
		return nil, notTakenOver(o, "node %s has no discovery labels from which its variant follows", node)
	}
	if !o.UpdatesOnDelete {
		return rendered, nil
	}
	var pods []corev1.Pod
	search, err := s.mayHaveTheirPods(ctx, rendered)
	if theirs || search {
		pods, err = s.handOverPods(ctx, o, rendered)
	}
	if err != nil {
		return nil, err
	}
	return s.keepNodes(o, rendered, pods), nil
}

func notTakenOver(o *operand.Operand, format string, args ...any) error {
	return fmt.Errorf("%w: DaemonSet %s of NVIDIA's operator is kept as it is: %s",
		status.ErrNotTakenOver, o.DaemonSet, fmt.Sprintf(format, args...))
}

// nodeWithoutAnchor returns a node that runs the operand and does not have the label of its variant, or "".
func (s *scope) nodeWithoutAnchor(o *operand.Operand) string {
	for facts := range s.view.EachFacts() {
		if facts.Deploy[string(o.Name)] == labels.True && facts.Labels[o.AnchorLabel()] == "" {
			return facts.Name
		}
	}
	return ""
}

// mayHaveTheirPods reports whether DaemonSets may have pods of NVIDIA's operator: new ones may get them, and those that
// were taken over may have one that was created just before. Where all pods are up to date, no pod is read.
func (s *scope) mayHaveTheirPods(ctx context.Context, rendered []*appsv1.DaemonSet) (bool, error) {
	outdated := map[types.UID]bool{}
	for _, ds := range rendered {
		live := s.snapshot.DaemonSets[ds.Name]
		if live == nil {
			return true, nil
		}
		if live.Status.UpdatedNumberScheduled < live.Status.CurrentNumberScheduled ||
			live.Status.ObservedGeneration != live.Generation {
			outdated[live.UID] = true
		}
	}
	if len(outdated) == 0 {
		return false, nil
	}
	pods := &corev1.PodList{}
	if err := s.Client.List(ctx, pods, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing pods: %w", err)
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		controller := metav1.GetControllerOfNoCopy(&pod)
		return controller != nil && outdated[controller.UID] && pod.Labels[labels.Operand] == ""
	}), nil
}

// handOverPods gives the pods of NVIDIA's driver the labels of the DaemonSets that serve their nodes from now on, and
// returns all driver pods. It must not happen that a pod belongs to no DaemonSet while one selects its node, which would
// create a second pod, or that a pod matches a DaemonSet which does not select its node, which would adopt and delete
// it. So if the pods get several DaemonSets, NVIDIA's is deleted first, without its pods; then they are labelled; then
// the DaemonSets are created, each of which selects the nodes of its pods.
func (s *scope) handOverPods(
	ctx context.Context, o *operand.Operand, rendered []*appsv1.DaemonSet,
) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	pods, moves, err := s.moves(ctx, o, rendered)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(moves, func(m move) bool { return m.leaves() }) {
		if err := s.orphanPods(ctx, o); err != nil {
			return nil, err
		}
		// Only now the list is complete.
		if pods, moves, err = s.moves(ctx, o, rendered); err != nil {
			return nil, err
		}
	}
	for _, m := range moves {
		if err := s.Applier.Relabel(ctx, m.pod, m.to.Spec.Template.Labels, m.annotations()); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// keepNodes makes DaemonSets that get pods of NVIDIA's also select their nodes without the labels of the variant, until
// the DaemonSet controller has processed them. pods are all driver pods if they were read.
func (s *scope) keepNodes(o *operand.Operand, rendered []*appsv1.DaemonSet, pods []corev1.Pod) []*appsv1.DaemonSet {
	var all []*appsv1.DaemonSet
	for _, ds := range rendered {
		nodes := migrate.Nodes{Deploy: o.Name.DeployLabel(), Anchor: o.AnchorLabel()}
		if len(rendered) > 1 {
			nodes.OSIDs, nodes.OSVersions = s.systemsOf(ds.Spec.Template.Labels[labels.Pool])
		}
		if s.keepsNodes(nodes, ds, pods) {
			ds = ds.DeepCopy()
			nodes.Keep(ds)
		}
		all = append(all, ds)
	}
	return all
}

// keepsNodes reports whether the DaemonSet is taken over in this pass, or was and the controller has not followed yet.
func (s *scope) keepsNodes(nodes migrate.Nodes, ds *appsv1.DaemonSet, pods []corev1.Pod) bool {
	live := s.snapshot.DaemonSets[ds.Name]
	switch {
	case live == nil:
		return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
			return pod.Labels[labels.App] == ds.Spec.Template.Labels[labels.App] && metav1.GetControllerOfNoCopy(&pod) == nil
		})
	case migrate.IsNVIDIAs(s.policy.UID, live):
		return true
	}
	status := &live.Status
	followed := status.ObservedGeneration == live.Generation &&
		status.CurrentNumberScheduled >= status.DesiredNumberScheduled
	return nodes.AreKeptBy(live) && !followed
}

// systemsOf returns the operating systems of the nodes in a driver pool: IDs and versions, sorted.
func (s *scope) systemsOf(pool string) (ids, versions []string) {
	for facts := range s.view.EachFacts() {
		if facts.Pool == pool {
			ids, versions = append(ids, facts.OSID), append(versions, facts.OSVersion)
		}
	}
	slices.Sort(ids)
	slices.Sort(versions)
	return slices.Compact(ids), slices.Compact(versions)
}

// orphanPods deletes NVIDIA's DaemonSet without its pods. It returns an error until it is gone and no pod refers to it.
func (s *scope) orphanPods(ctx context.Context, o *operand.Operand) error {
	ds := &appsv1.DaemonSet{}
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: o.DaemonSet}, ds)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading DaemonSet %s: %w", o.DaemonSet, err)
	case err != nil:
		return nil
	case ds.DeletionTimestamp == nil && migrate.IsNVIDIAs(s.policy.UID, ds):
		if err := s.Applier.DeleteOnly(ctx, ds); err != nil {
			return err
		}
	}
	s.requeueAfter(s.Timing.RetryHandOver)
	return notTakenOver(o, "it is being deleted without its pods, which get DaemonSets for their operating systems")
}

// move is a pod of NVIDIA's operator, and the DaemonSet that is to have it.
type move struct {
	pod *corev1.Pod
	to  *appsv1.DaemonSet
}

// leaves reports whether the pod gets another value of the label in the selector of its DaemonSet.
func (m *move) leaves() bool {
	return m.pod.Labels[labels.App] != m.to.Spec.Template.Labels[labels.App]
}

// annotations are those that mark the pod as up to date, if it has installed what the DaemonSet installs.
func (m *move) annotations() map[string]string {
	if !migrate.SameDriver(&m.pod.Spec, &m.to.Spec.Template.Spec) {
		return nil
	}
	return map[string]string{labels.TemplateDigest: m.to.Spec.Template.Annotations[labels.TemplateDigest]}
}

// moves returns all driver pods, and those of them that still have NVIDIA's labels with their DaemonSets.
func (s *scope) moves(
	ctx context.Context, o *operand.Operand, rendered []*appsv1.DaemonSet,
) (pods []corev1.Pod, found []move, err error) {
	if pods, err = observe.DriverPods(ctx, s.Live, s.Namespace); err != nil {
		return nil, nil, err
	}
	pools := map[string]string{}
	for facts := range s.view.EachFacts() {
		pools[facts.Name] = facts.Pool
	}
	for i := range pods {
		pod := &pods[i]
		controller := metav1.GetControllerOf(pod)
		if pod.DeletionTimestamp != nil || pod.Labels[labels.Operand] != "" || pod.Labels[labels.App] != o.DaemonSet ||
			controller != nil && controller.Name != o.DaemonSet {
			continue
		}
		pool := pools[observe.PodNode(pod)]
		at := slices.IndexFunc(rendered, func(ds *appsv1.DaemonSet) bool {
			return pool != "" && ds.Spec.Template.Labels[labels.Pool] == pool
		})
		if at < 0 {
			return nil, nil, notTakenOver(o, "its pod %s is on node %s, which has no driver pool (%q)",
				pod.Name, observe.PodNode(pod), pool)
		}
		found = append(found, move{pod: pod, to: rendered[at]})
	}
	return pods, found, nil
}

// pruneLeft deletes what only the pods of NVIDIA's operator used, once none of them is left. It lists once after a
// start, and again after it has seen a DaemonSet of NVIDIA's operator.
func (s *scope) pruneLeft(ctx context.Context) {
	if !s.isTakenOver(ctx) {
		s.leftPruned = false
		return
	}
	if s.leftPruned || s.err != nil {
		return
	}
	listCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.Live.List(listCtx, list, client.InNamespace(s.Namespace)); err != nil {
		s.fail(fmt.Errorf("listing ConfigMaps that NVIDIA's operator may have left: %w", err))
		return
	}
	for i := range list.Items {
		object := &list.Items[i]
		if !slices.Contains(migrate.LeftConfigMaps(), object.Name) || object.Labels[labels.Operand] != "" ||
			!migrate.IsNVIDIAs(s.policy.UID, object) {
			continue
		}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		if err := s.Applier.Delete(ctx, object); err != nil {
			s.fail(err)
			return
		}
	}
	s.leftPruned = true
}

// isTakenOver reports whether no DaemonSet of NVIDIA's operator is left and all pods but those of drivers have been
// replaced. A DaemonSet of it that this operator has none for is deleted.
func (s *scope) isTakenOver(ctx context.Context) bool {
	rendered := map[string]bool{}
	for name := range s.objects {
		for _, ds := range s.renderedDaemonSets(name) {
			rendered[ds.Name] = true
		}
	}
	done := true
	for name, ds := range s.snapshot.DaemonSets {
		theirs := migrate.IsNVIDIAs(s.policy.UID, ds)
		if theirs && !rendered[name] && migrate.IsUnneeded(ds) && s.err == nil {
			left := ds.DeepCopy()
			left.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
			s.fail(s.Applier.Delete(ctx, left))
		}
		rolled := ds.Status.ObservedGeneration == ds.Generation &&
			ds.Status.UpdatedNumberScheduled >= ds.Status.DesiredNumberScheduled
		done = done && !theirs && (rolled || ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType)
	}
	return done && len(rendered) > 0
}
