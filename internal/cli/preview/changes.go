package preview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// Action is what happens to an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
	// Refuse: the object cannot be written, or its operand not rendered; Change.Message says why.
	Refuse Action = "refuse"
)

// Effect is what a changed DaemonSet means for its pods.
type Effect string

// The effects.
const (
	// PodsStay: the template has no significant change.
	PodsStay Effect = "stay"
	// PodsRoll: the DaemonSet controller replaces the pods.
	PodsRoll Effect = "replaced"
	// PodsOutdated: the pods are replaced by driver upgrades, or when they are deleted.
	PodsOutdated Effect = "outdated"
)

// Change is one object that would be written or deleted.
type Change struct {
	Action  Action `json:"action"`
	Operand string `json:"operand"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	// Field is the first one that differs, for Update.
	Field string `json:"field,omitempty"`
	// Images are those of its containers that differ, for Update of a DaemonSet, or all, for Create.
	Images []ImageChange `json:"images,omitempty"`
	// Pods is the effect on the pods of a live DaemonSet, and Running how many it has. It is empty for a deletion that
	// ends the pods.
	Pods    Effect `json:"pods,omitempty"`
	Running int32  `json:"running,omitempty"`
	// Later: the change does not follow the edit at once, but when driver upgrades move the first node to the DaemonSet,
	// or the last one from it.
	Later bool `json:"later,omitempty"`
	// Message explains Refuse.
	Message string `json:"message,omitempty"`
	// Differences are all fields that change, for Update, and the images, for Create. Digests are left out.
	Differences []drift.Difference `json:"differences,omitempty"`
}

// RemovesPods reports whether a DaemonSet is deleted whose pods end at once, without another one that gets them.
func (change *Change) RemovesPods() bool {
	return change.Action == Delete && change.Kind == "DaemonSet" && change.Pods == ""
}

// ImageChange is a container with another image than before; Before is empty for a new one.
type ImageChange struct {
	Container string `json:"container"`
	Before    string `json:"before"`
	After     string `json:"after"`
}

// changes are all changes of objects.
type changes struct {
	changed   []Change
	unchanged int
	// daemonSets are those that are rendered, by name.
	daemonSets map[string]*appsv1.DaemonSet
	// unread are the kinds of which none was read, so that they are not compared.
	unread map[string]bool
}

// changesOf compares what the pass would render with the live objects: now, and when driver upgrades have moved the
// nodes.
func changesOf(c *Cluster, now, moved plan.Plan, policy *v1.ClusterPolicy) changes {
	found := changes{changed: []Change{}, daemonSets: map[string]*appsv1.DaemonSet{}, unread: map[string]bool{}}
	first := renderedOf(c, now, policy)
	found.changed = append(found.changed, first.refused...)
	for _, object := range first.objects {
		found.compare(c, object)
	}
	found.prune(c, &first.kept)
	found.addLater(c, first, renderedOf(c, moved, policy))
	found.handOver(c)
	return found
}

// notes returns a sentence about the kinds that are not compared.
func (f *changes) notes() []string {
	if len(f.unread) == 0 {
		return nil
	}
	return []string{"no object was read of " + strings.Join(slices.Sorted(maps.Keys(f.unread)), ", ") +
		": what would be created, changed or deleted of them is not shown"}
}

// renderedObjects are the objects of a plan.
type renderedObjects struct {
	objects []manifest.Object
	// refused are the operands that cannot be rendered.
	refused []Change
	// kept are the objects that are not pruned.
	kept apply.Rendered
}

// renderedOf renders the objects of a plan.
func renderedOf(c *Cluster, p plan.Plan, policy *v1.ClusterPolicy) renderedObjects {
	owner := render.Owner{Name: policy.Name, UID: string(ownerUID(c.policy))}
	found := renderedObjects{kept: apply.Rendered{Kept: map[string]bool{}}}
	for _, step := range p.Steps {
		if step.Action == plan.Hold || step.KeepUnrendered {
			found.kept.Kept[string(step.Operand.Name)] = true
		}
		if step.Action != plan.Apply {
			continue
		}
		objects, err := render.Step(p, step, owner, c.live(&step.Operand, step.Instances))
		if err != nil {
			found.kept.Kept[string(step.Operand.Name)] = true
			found.refused = append(found.refused, Change{
				Action: Refuse, Operand: string(step.Operand.Name), Message: err.Error(),
			})
			continue
		}
		for _, object := range objects {
			found.kept.Add(object)
		}
		found.objects = append(found.objects, objects...)
	}
	return found
}

// handOver adds the driver DaemonSets of NVIDIA's operator whose pods other DaemonSets get.
func (f *changes) handOver(c *Cluster) {
	owners := []types.UID{ownerUID(c.policy)}
	for _, object := range of[*v1alpha1.NVIDIADriver](c) {
		owners = append(owners, object.UID)
	}
	var drivers []*appsv1.DaemonSet
	for _, name := range slices.Sorted(maps.Keys(f.daemonSets)) {
		if f.daemonSets[name].Labels[labels.Component] == labels.DriverComponent {
			drivers = append(drivers, f.daemonSets[name])
		}
	}
	for _, ds := range inNamespace[*appsv1.DaemonSet](c) {
		if len(drivers) == 0 || f.daemonSets[ds.Name] != nil || !migrate.IsNVIDIAs(owners, ds) ||
			ds.Labels[labels.Component] != labels.DriverComponent {
			continue
		}
		change := Change{
			Action: Delete, Operand: drivers[0].Labels[labels.Operand], Kind: ds.Kind, Name: ds.Name,
			Pods: PodsOutdated, Running: ds.Status.CurrentNumberScheduled,
		}
		if slices.ContainsFunc(drivers, func(driver *appsv1.DaemonSet) bool {
			return migrate.SameDriver(&ds.Spec.Template.Spec, &driver.Spec.Template.Spec)
		}) {
			change.Pods = PodsStay
		}
		f.changed = append(f.changed, change)
	}
}

// compare adds the change of one rendered object.
func (f *changes) compare(c *Cluster, object manifest.Object) {
	if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
		f.daemonSets[ds.Name] = ds
	}
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if !c.Read[kind] {
		f.unread[kind] = true
		return
	}
	change := Change{
		Action: Update, Operand: object.GetLabels()[labels.Operand], Kind: kind, Name: object.GetName(),
	}
	live := c.find(object)
	if live == nil {
		change.Action = Create
		change.addImages(object)
		f.changed = append(f.changed, change)
		return
	}
	field, err := apply.Compare(ownerUID(c.policy), object, live)
	if err == nil && field == nil {
		f.unchanged++
		return
	}
	found := difference{}
	if err == nil {
		found, err = differenceOf(object, live)
	}
	if err != nil {
		change.Action, change.Message = Refuse, err.Error()
		f.changed = append(f.changed, change)
		return
	}
	change.Field = cmp.Or(found.field, "fields that are no longer set")
	change.Differences = found.all
	change.Pods, change.Running = effectOf(object, live, found)
	change.Images = imageChanges(object, live)
	f.changed = append(f.changed, change)
}

// effectOf returns what the change of an object means for the pods of its DaemonSet.
func effectOf(rendered, live manifest.Object, d difference) (Effect, int32) {
	ds, isDaemonSet := rendered.(*appsv1.DaemonSet)
	before, wasDaemonSet := live.(*appsv1.DaemonSet)
	if !isDaemonSet || !wasDaemonSet {
		return "", 0
	}
	significant := ds.Annotations[labels.TemplateDigest] != before.Annotations[labels.TemplateDigest]
	if before.Annotations[labels.NVIDIAHash] != "" {
		significant = !migrate.SameDriver(&before.Spec.Template.Spec, &ds.Spec.Template.Spec)
	}
	running := before.Status.CurrentNumberScheduled
	switch {
	case ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType && significant:
		return PodsOutdated, running
	case ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return PodsStay, running
	case significant || d.template || d.field == "":
		// The DaemonSet controller compares all of the template.
		return PodsRoll, running
	}
	return PodsStay, running
}

// imageChanges returns the containers of a DaemonSet that get another image.
func imageChanges(rendered, live manifest.Object) []ImageChange {
	after, isDaemonSet := rendered.(*appsv1.DaemonSet)
	before, wasDaemonSet := live.(*appsv1.DaemonSet)
	if !isDaemonSet || !wasDaemonSet {
		return nil
	}
	images := map[string]string{}
	for _, container := range containersOf(before) {
		images[container.Name] = container.Image
	}
	var found []ImageChange
	for _, container := range containersOf(after) {
		if image, existed := images[container.Name]; existed && image != container.Image {
			found = append(found, ImageChange{Container: container.Name, Before: image, After: container.Image})
		}
	}
	return found
}

func containersOf(ds *appsv1.DaemonSet) []corev1.Container {
	spec := &ds.Spec.Template.Spec
	return slices.Concat(spec.InitContainers, spec.Containers)
}

// prune adds the objects that would be deleted.
func (f *changes) prune(c *Cluster, kept *apply.Rendered) {
	for _, object := range c.pruned(kept) {
		f.changed = append(f.changed, deletion(object))
	}
}

// deletion is the change of an object that is deleted.
func deletion(object manifest.Object) Change {
	change := Change{
		Action: Delete, Operand: object.GetLabels()[labels.Operand], Kind: object.GetObjectKind().GroupVersionKind().Kind,
		Name: object.GetName(),
	}
	if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
		change.Running = ds.Status.CurrentNumberScheduled
	}
	return change
}

// pruned returns the live objects that are not kept.
func (c *Cluster) pruned(kept *apply.Rendered) []manifest.Object {
	uid := ownerUID(c.policy)
	kinds := map[string]bool{}
	for _, kind := range manifest.Kinds() {
		kinds[kind.GetObjectKind().GroupVersionKind().Kind] = true
	}
	for kind, served := range c.optional() {
		kinds[string(kind)] = served
	}
	var found []manifest.Object
	for _, object := range c.Objects {
		if kinds[object.GetObjectKind().GroupVersionKind().Kind] && kept.Prunes(uid, object) {
			found = append(found, object)
		}
	}
	return found
}
