package preview

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// addLater adds the objects that are created or deleted as driver upgrades move nodes to other driver pools, of which
// each has a DaemonSet.
func (f *changes) addLater(c *Cluster, now, moved renderedObjects) {
	later := changes{daemonSets: f.daemonSets, unread: f.unread}
	for _, object := range now.appearing(moved) {
		later.compare(c, object)
	}
	stays := c.pruned(&now.kept)
	for _, object := range c.pruned(&moved.kept) {
		if slices.ContainsFunc(stays, func(other manifest.Object) bool { return isSame(object, other) }) {
			continue
		}
		change := deletion(object)
		change.Pods = PodsOutdated
		later.changed = append(later.changed, change)
	}
	for i := range later.changed {
		later.changed[i].Later = true
	}
	f.changed = append(f.changed, later.changed...)
	f.unchanged += later.unchanged
}

// appearing returns those of the later objects that are not among these.
func (r *renderedObjects) appearing(later renderedObjects) []manifest.Object {
	var found []manifest.Object
	for _, object := range later.objects {
		if !slices.ContainsFunc(r.objects, func(other manifest.Object) bool { return isSame(object, other) }) {
			found = append(found, object)
		}
	}
	return found
}

// isSame reports whether two objects have the same kind, namespace and name.
func isSame(a, b manifest.Object) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() &&
		a.GetObjectKind().GroupVersionKind() == b.GetObjectKind().GroupVersionKind()
}

// addImages adds the images of a new DaemonSet.
func (change *Change) addImages(object manifest.Object) {
	ds, isDaemonSet := object.(*appsv1.DaemonSet)
	if !isDaemonSet {
		return
	}
	for _, container := range ds.Spec.Template.Spec.Containers {
		change.Images = append(change.Images, ImageChange{Container: container.Name, After: container.Image})
		change.Differences = append(change.Differences, drift.Difference{
			Path: "spec.template.spec.containers[" + container.Name + "].image", After: container.Image,
		})
	}
}
