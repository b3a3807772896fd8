package clusterpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// takeOver prepares the DaemonSets that NVIDIA's operator has left and that select fewer nodes from now on. Until
// nothing can be lost by applying an operand's DaemonSets, they are left out of this pass, and the status has the
// reason.
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
	if base := s.snapshot.DaemonSets[o.DaemonSet]; base != nil && s.isNVIDIAs(base) {
		if node := s.nodeWithoutAnchor(o); node != "" {
			return nil, notTakenOver("DaemonSet %s of NVIDIA's operator is kept as it is: node %s has no discovery labels "+
				"from which its variant follows", o.DaemonSet, node)
		}
	}
	if !o.UpdatesOnDelete {
		return rendered, nil
	}
	unowned, err := s.handOverDrivers(ctx, rendered)
	if err != nil {
		return nil, err
	}
	return s.keepNodes(o, rendered, unowned), nil
}

func notTakenOver(format string, args ...any) error {
	return fmt.Errorf("%w: %s", status.ErrNotTakenOver, fmt.Sprintf(format, args...))
}

// isNVIDIAs reports whether NVIDIA's operator has written the object last, for the policy or an NVIDIADriver object.
func (s *scope) isNVIDIAs(object client.Object) bool {
	owners := []types.UID{s.policy.UID}
	for i := range s.drivers {
		owners = append(owners, s.drivers[i].UID)
	}
	return migrate.IsNVIDIAs(owners, object)
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

// keepNodes makes DaemonSets that get pods of NVIDIA's also select their nodes without the labels of the variant, until
// the DaemonSet controller has processed them. unowned are the driver pods without a controller if they were read.
func (s *scope) keepNodes(o *operand.Operand, rendered []*appsv1.DaemonSet, unowned []*corev1.Pod) []*appsv1.DaemonSet {
	var all []*appsv1.DaemonSet
	for _, ds := range rendered {
		nodes := migrate.Nodes{Deploy: o.Name.DeployLabel(), Anchor: o.AnchorLabel()}
		if len(rendered) > 1 {
			nodes.Hostnames = s.hostnames(ds.Spec.Template.Labels[labels.Pool])
		}
		if s.keepsNodes(nodes, ds, unowned) {
			ds = ds.DeepCopy()
			nodes.Keep(ds)
		}
		all = append(all, ds)
	}
	return all
}

// keepsNodes reports whether the DaemonSet is taken over in this pass, or was and the controller has not followed yet.
func (s *scope) keepsNodes(nodes migrate.Nodes, ds *appsv1.DaemonSet, unowned []*corev1.Pod) bool {
	live := s.snapshot.DaemonSets[ds.Name]
	switch {
	case live == nil:
		return slices.ContainsFunc(unowned, func(pod *corev1.Pod) bool {
			return pod.Labels[labels.App] == ds.Spec.Template.Labels[labels.App]
		})
	case s.isNVIDIAs(live):
		return true
	}
	status := &live.Status
	followed := status.ObservedGeneration == live.Generation &&
		status.CurrentNumberScheduled >= status.DesiredNumberScheduled
	return nodes.AreKeptBy(live) && !followed
}

// hostnames returns the labels of the nodes in a driver pool, sorted.
func (s *scope) hostnames(pool string) []string {
	var names []string
	for facts := range s.view.EachFacts() {
		if name := facts.Labels[corev1.LabelHostname]; facts.Pool == pool && name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
