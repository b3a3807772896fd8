package clusterpolicy

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/migrate"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// takeOver prepares the DaemonSets that NVIDIA's operator has left and that select fewer nodes from now on. Until
// nothing can be lost by applying an operand's DaemonSets, they are left out of this pass.
func (s *scope) takeOver(ctx context.Context) {
	for _, step := range s.planned.Steps {
		o := &step.Operand
		rendered := s.renderedDaemonSets(o.Name)
		if o.DaemonSet == "" || len(rendered) == 0 {
			continue
		}
		ready, err := s.handOver(ctx, o, rendered)
		if err != nil {
			s.fail(err)
			s.applied[o.Name] = status.ApplyResult{Err: err}
		}
		if !ready {
			s.requeueAfter(s.Timing.RetryHandOver)
			s.objects[o.Name] = slices.DeleteFunc(slices.Clone(s.objects[o.Name]), func(object manifest.Object) bool {
				_, isDaemonSet := object.(*appsv1.DaemonSet)
				return isDaemonSet
			})
		}
	}
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

// handOver reports whether the DaemonSets of an operand with variants can be applied. NVIDIA's selects nodes by the
// deploy label alone, and the DaemonSet controller deletes the pods of nodes that stop matching. So first each node
// gets the labels of its variant.
func (s *scope) handOver(ctx context.Context, o *operand.Operand, rendered []*appsv1.DaemonSet) (bool, error) {
	base := s.snapshot.DaemonSets[o.DaemonSet]
	theirs := base != nil && migrate.IsNVIDIAs(s.policy.UID, base)
	if theirs && !s.nodesHaveAnchors(o) {
		return false, nil
	}
	exist := !slices.ContainsFunc(rendered, func(ds *appsv1.DaemonSet) bool {
		return s.snapshot.DaemonSets[ds.Name] == nil
	})
	if !o.UpdatesOnDelete || !theirs && exist {
		return true, nil
	}
	return s.handOverPods(ctx, o, rendered)
}

// nodesHaveAnchors reports whether all nodes that run the operand have the label of their variant.
func (s *scope) nodesHaveAnchors(o *operand.Operand) bool {
	for facts := range s.view.EachFacts() {
		if facts.Deploy[string(o.Name)] == labels.True && facts.Labels[o.AnchorLabel()] == "" {
			return false
		}
	}
	return true
}

// handOverPods gives the pods of NVIDIA's driver the labels of the DaemonSets that serve their nodes from now on, and
// reports whether all have them. It must not happen that a pod belongs to no DaemonSet while one selects its node,
// which would create a second pod, or that a pod matches a DaemonSet which does not select its node, which would adopt
// and delete it. So if the pods get several DaemonSets, NVIDIA's is deleted first, without its pods; then they are
// labelled; then the DaemonSets are created, each of which selects the nodes of its pods.
func (s *scope) handOverPods(ctx context.Context, o *operand.Operand, rendered []*appsv1.DaemonSet) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	pods, err := observe.DriverPods(ctx, s.Live, s.Namespace)
	if err != nil {
		return false, err
	}
	moves, err := s.moves(o, pods, rendered)
	if err != nil || len(moves) == 0 {
		return err == nil, err
	}
	if slices.ContainsFunc(moves, func(m move) bool { return m.leaves() }) {
		gone, err := s.orphanPods(ctx, o)
		if err != nil || !gone {
			return false, err
		}
	}
	for _, m := range moves {
		if err := s.Applier.Relabel(ctx, m.pod, m.to.Spec.Template.Labels, m.annotations()); err != nil {
			return false, err
		}
	}
	return true, nil
}

// orphanPods deletes NVIDIA's DaemonSet without its pods, and reports whether it is gone and no pod refers to it.
func (s *scope) orphanPods(ctx context.Context, o *operand.Operand) (bool, error) {
	ds := &appsv1.DaemonSet{}
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: o.DaemonSet}, ds)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("reading DaemonSet %s: %w", o.DaemonSet, err)
	case err != nil:
		return true, nil
	case ds.DeletionTimestamp == nil && migrate.IsNVIDIAs(s.policy.UID, ds):
		return false, s.Applier.DeleteOnly(ctx, ds)
	}
	return false, nil
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

// moves returns the pods that still have NVIDIA's labels, with their DaemonSets.
func (s *scope) moves(o *operand.Operand, pods []corev1.Pod, rendered []*appsv1.DaemonSet) ([]move, error) {
	pools := map[string]string{}
	for facts := range s.view.EachFacts() {
		pools[facts.Name] = facts.Pool
	}
	var found []move
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
			return nil, fmt.Errorf("taking over DaemonSet %s: its pod %s is on node %s, which has no driver pool (%q): "+
				"give the node the labels of node discovery, or delete the pod", o.DaemonSet, pod.Name,
				observe.PodNode(pod), pool)
		}
		found = append(found, move{pod: pod, to: rendered[at]})
	}
	return found, nil
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
