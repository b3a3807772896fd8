package migrationsteps

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// errNoRevision is the error for an operand whose pod template is recorded nowhere.
var errNoRevision = errors.New("no ControllerRevision has the template of its pods")

// merge returns the steps that make the pods of each operand those of the DaemonSet that NVIDIA's operator handles, and
// what prevents it. It must not happen that a pod belongs to no DaemonSet while one selects its node, which would
// create a second pod, or that it matches a DaemonSet which does not select its node, which would adopt and delete it.
// So where an operand has several DaemonSets, or one with another name or selector, all of them are deleted first,
// without their pods; then the pods are labelled; then NVIDIA's DaemonSet is created, which selects the nodes of all
// pods and adopts them. Each step follows from what the cluster has, so that the command can be repeated after any of
// them.
func (b *Back) merge() ([]Step, []Blocker) {
	var selects, steps []Step
	var blockers []Blocker
	missing := map[string]map[string]any{}
	for _, p := range places() {
		groups, blocked := b.collectGroups(p, missing)
		blockers = append(blockers, blocked...)
		merged, err := b.mergeOperand(p, groups)
		if err != nil {
			blockers = append(blockers, Blocker{
				Cause:  fmt.Sprintf("DaemonSet %s cannot be created: %v", p.name, err),
				Remedy: "wait a minute and repeat the command",
			})
		}
		steps = append(steps, merged...)
	}
	for _, node := range slices.Sorted(maps.Keys(missing)) {
		selects = append(selects, patched(ActionSelect, b.object(kindNode, node), map[string]any{
			"metadata": map[string]any{"labels": missing[node]},
		}))
	}
	return append(selects, steps...), blockers
}

// group are the pods that one DaemonSet of NVIDIA's operator gets.
type group struct {
	place
	pods []*corev1.Pod
}

// podsOf returns the pods of an operand of this operator that are not ending.
func (b *Back) podsOf(operand string) []*corev1.Pod {
	var found []*corev1.Pod
	for i := range b.pods {
		if pod := &b.pods[i]; pod.Labels[labels.Operand] == operand && pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	return found
}

// collectGroups returns the pods of an operand by the DaemonSet that gets them, and which nodes it would exclude. It
// adds to missing the labels by which it selects them.
func (b *Back) collectGroups(p place, missing map[string]map[string]any) ([]group, []Blocker) {
	byName := map[string]*group{}
	var blockers []Blocker
	for _, pod := range b.podsOf(p.operand) {
		node := b.node(observe.PodNode(pod))
		if node == nil {
			continue // The pod ends with its node.
		}
		onNode := p.on(node)
		wrong, absent := onNode.excludedBy(node)
		if wrong != "" {
			blockers = append(blockers, Blocker{
				Cause: fmt.Sprintf("node %s runs pod %s, and with its label %s DaemonSet %s would end it", node.Name, pod.Name,
					wrong, onNode.name),
				Remedy: "wait until this operator has removed the pod, or change the label",
			})
		}
		for key, value := range absent {
			if missing[node.Name] == nil {
				missing[node.Name] = map[string]any{}
			}
			missing[node.Name][key] = value
		}
		if byName[onNode.name] == nil {
			byName[onNode.name] = &group{place: onNode}
		}
		byName[onNode.name].pods = append(byName[onNode.name].pods, pod)
	}
	var found []group
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		found = append(found, *byName[name])
	}
	return found, blockers
}

// mergeOperand returns the steps for one operand; none if its only DaemonSet is as NVIDIA's operator has it.
func (b *Back) mergeOperand(p place, groups []group) ([]Step, error) {
	own := b.setsOf(p.operand)
	if b.inPlace(p, own, groups) {
		return nil, nil
	}
	var steps, creates []Step
	for _, ds := range own {
		steps = append(steps, step(ActionOrphan, b.object(kindDaemonSet, ds.Name)))
	}
	for i := range groups {
		g := &groups[i]
		live := b.object(kindDaemonSet, g.name)
		if live != nil && labels.IsApplied(live) {
			live = nil // It is deleted before.
		}
		for _, pod := range g.pods {
			if move, needed := b.move(g, pod, live); needed {
				steps = append(steps, move)
			}
		}
		if live != nil {
			continue
		}
		create, err := b.create(g)
		if err != nil {
			return nil, err
		}
		creates = append(creates, create)
	}
	return append(steps, creates...), nil
}

// setsOf returns the DaemonSets of this operator for an operand.
func (b *Back) setsOf(operand string) []*appsv1.DaemonSet {
	var own []*appsv1.DaemonSet
	for i := range b.sets {
		if ds := &b.sets[i]; labels.IsApplied(ds) && ds.Labels[labels.Operand] == operand {
			own = append(own, ds)
		}
	}
	return own
}

// inPlace reports whether the operand has one DaemonSet of this operator, with the name and the selector of NVIDIA's,
// and all pods belong to it, so that NVIDIA's operator can update it.
func (b *Back) inPlace(p place, own []*appsv1.DaemonSet, groups []group) bool {
	if len(own) != 1 || len(groups) > 1 {
		return false
	}
	if len(groups) == 1 {
		p = groups[0].place
		for _, pod := range groups[0].pods {
			if controller := metav1.GetControllerOfNoCopy(pod); controller == nil || controller.UID != own[0].UID {
				return false
			}
		}
	}
	selector := own[0].Spec.Selector
	return own[0].Name == p.name && selector != nil && maps.Equal(selector.MatchLabels, p.selector)
}

// move returns the step that gives a pod the labels of its new DaemonSet, which is nil if it does not exist yet, and
// whether the pod needs it. A reference to a DaemonSet
// that was deleted meanwhile is removed: the garbage collector would delete the pod.
func (b *Back) move(g *group, pod *corev1.Pod, live *unstructured.Unstructured) (Step, bool) {
	controller := metav1.GetControllerOfNoCopy(pod)
	_, generation := pod.Labels[labels.TemplateGeneration]
	adopted := live != nil && controller != nil && controller.UID == live.GetUID()
	if adopted || g.selects(pod) && !generation {
		return Step{}, false
	}
	added := map[string]any{labels.TemplateGeneration: nil}
	for key, value := range g.selector {
		added[key] = value
	}
	metadata := map[string]any{"uid": pod.UID, "labels": added}
	if controller != nil && controller.Kind == kindDaemonSet {
		metadata["ownerReferences"] = slices.DeleteFunc(slices.Clone(pod.OwnerReferences),
			func(owner metav1.OwnerReference) bool { return owner.UID == controller.UID })
	}
	return patched(ActionMove, b.object(kindPod, pod.Name), map[string]any{"metadata": metadata}), true
}

// create returns the step that creates the DaemonSet of a group. Its pods are only updated when they are deleted, so
// that none ends before NVIDIA's operator has updated the DaemonSet.
func (b *Back) create(g *group) (Step, error) {
	template, err := b.template(g)
	if err != nil {
		return Step{}, err
	}
	metadata := map[string]any{
		"name": g.name, "namespace": b.namespace, "labels": template.Labels,
	}
	if policy := b.ActivePolicy(); policy != nil {
		metadata["ownerReferences"] = []metav1.OwnerReference{
			*metav1.NewControllerRef(policy, policy.GroupVersionKind()),
		}
	}
	return Step{
		Action: ActionCreate,
		Object: cleanup.Object{
			Kind: kindDaemonSet, Resource: cleanup.Resource(appsv1.SchemeGroupVersion.WithKind(kindDaemonSet)),
			Namespace: b.namespace, Name: g.name,
		},
		Patch: map[string]any{
			"apiVersion": appsv1.SchemeGroupVersion.String(), "kind": kindDaemonSet, "metadata": metadata,
			"spec": appsv1.DaemonSetSpec{
				Selector:       &metav1.LabelSelector{MatchLabels: g.selector},
				Template:       *template,
				UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			},
		},
	}, nil
}

// template returns the newest pod template of this operator for the variant of the first pod, as the DaemonSet of a
// group has it. The DaemonSets themselves may have been deleted; their revisions stay.
func (b *Back) template(g *group) (*corev1.PodTemplateSpec, error) {
	first := slices.MinFunc(g.pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(variantOf(a.Labels), variantOf(b.Labels))
	})
	var newest *appsv1.ControllerRevision
	for i := range b.revisions {
		r := &b.revisions[i]
		if r.Labels[labels.Operand] == g.operand && variantOf(r.Labels) == variantOf(first.Labels) &&
			(newest == nil || r.Revision > newest.Revision) {
			newest = r
		}
	}
	if newest == nil {
		return nil, errNoRevision
	}
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(newest.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s: %w", newest.Name, err)
	}
	template := &data.Spec.Template
	for _, entries := range []map[string]string{template.Labels, template.Annotations} {
		maps.DeleteFunc(entries, func(key, _ string) bool { return labels.IsOwn(key) })
	}
	maps.Copy(template.Labels, g.selector)
	maps.Copy(template.Labels, g.labels)
	template.Spec.NodeSelector = g.nodes
	if affinity := template.Spec.Affinity; affinity != nil {
		affinity.NodeAffinity = nil
	}
	return template, nil
}

// variantOf names the variant of nodes that labels of a pod or of its template are for.
func variantOf(all map[string]string) string {
	return strings.Join([]string{all[labels.Pool], all[labels.NodePool], all[labels.Layout]}, "/")
}
