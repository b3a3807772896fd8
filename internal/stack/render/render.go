package render

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// Owner is the policy that owns the objects.
type Owner struct {
	Name string
	UID  string
}

// templateValues has the values that a template can insert.
type templateValues struct {
	Namespace string
	Suffix    string
	// DaemonSet of the instance, if the operand has one for each variant of node.
	DaemonSet    rollout.Identity
	Pool         string
	RuntimeClass string
	// PodRuntimeClass is the RuntimeClass of pods that get GPUs; empty if they need none.
	PodRuntimeClass string
	Paths           effective.HostPaths
	Helper          helper
	MayRun          map[string]bool
	WritesMarkers   map[string]bool
	// ProbeScript: pods of NVIDIA's operator mount the script of their start-up probe.
	ProbeScript bool
	Values      any
}

// helper is the helper image.
type helper struct{ Image, PullPolicy string }

// helperOf returns the helper image of the spec.
func helperOf(in operand.Input) (helper, error) {
	spec := in.HelperSpec()
	found, err := image.Helper(spec, in.OperatorImage)
	if err != nil {
		return helper{}, fmt.Errorf("spec.validator: %w", err)
	}
	return helper{
		Image: image.Mirror(in.Spec.Global.Registry, found.Image), PullPolicy: string(spec.ImagePullPolicy),
	}, nil
}

// Step renders the objects of a step, instance by instance. live are the operand's DaemonSets in the cluster, by name.
// An error is a defect of the assets, or names the wrong field of the spec.
func Step(p plan.Plan, step plan.Step, owner Owner, live map[string]rollout.Live) ([]manifest.Object, error) {
	objects, err := all(p, step, owner, live)
	if err != nil {
		return nil, err
	}
	if unknown := UnknownContainers(p.Input.PlacementOf(&step.Operand), containerNames(objects)); len(unknown) > 0 {
		return nil, operand.InvalidSpec{Message: unknown[0]}
	}
	return objects, nil
}

// ContainerNames returns the names of all containers of a step's pods, sorted.
func ContainerNames(p plan.Plan, step plan.Step) ([]string, error) {
	objects, err := all(p, step, Owner{}, nil)
	return containerNames(objects), err
}

// all renders the objects of a step, whatever containers the spec lists.
func all(p plan.Plan, step plan.Step, owner Owner, live map[string]rollout.Live) ([]manifest.Object, error) {
	helper, err := helperOf(p.Input)
	if err != nil {
		return nil, err
	}
	identities := rollout.AssignIdentities(&step.Operand, step.Instances, live)
	var objects []manifest.Object
	for _, instance := range step.Instances {
		r := renderer{plan: p, step: step, instance: instance, owner: owner, live: live, context: templateValues{
			Namespace:       p.Input.Namespace,
			Suffix:          instance.Suffix,
			DaemonSet:       identities[instance.Variant()],
			Pool:            instance.Pool,
			RuntimeClass:    p.Input.RuntimeClass(),
			PodRuntimeClass: p.Input.PodRuntimeClass(),
			Paths:           p.Input.Spec.Paths(),
			Helper:          helper,
			MayRun:          withStringKeys(p.MayRun),
			WritesMarkers:   withStringKeys(step.WritesMarkers),
			ProbeScript:     rollout.AnyNeedsProbeScript(live),
			Values:          instance.Values,
		}}
		rendered, err := r.objects()
		if err != nil {
			return nil, fmt.Errorf("rendering operand %s: %w", step.Operand.Name, err)
		}
		objects = appendDistinct(objects, rendered)
	}
	return objects, nil
}

// withStringKeys returns the map with string keys, which templates can look up.
func withStringKeys[K ~string](flags map[K]bool) map[string]bool {
	result := make(map[string]bool, len(flags))
	for key, value := range flags {
		result[string(key)] = value
	}
	return result
}

// appendDistinct appends the objects that no earlier instance has rendered: instances of an operand may share objects.
func appendDistinct(objects, more []manifest.Object) []manifest.Object {
	for _, candidate := range more {
		exists := false
		for _, object := range objects {
			exists = exists || (object.GetName() == candidate.GetName() && object.GetNamespace() == candidate.GetNamespace() &&
				object.GetObjectKind().GroupVersionKind() == candidate.GetObjectKind().GroupVersionKind())
		}
		if !exists {
			objects = append(objects, candidate)
		}
	}
	return objects
}

type renderer struct {
	plan     plan.Plan
	step     plan.Step
	instance operand.Instance
	owner    Owner
	live     map[string]rollout.Live
	context  templateValues
}

func (r *renderer) objects() ([]manifest.Object, error) {
	objects, err := manifest.DecodeFolder(string(r.step.Operand.Name), r.context)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(object manifest.Object) bool { return !r.isRendered(object) })
	for _, object := range objects {
		r.applyMonitor(object)
		r.setOwner(object)
		if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
			if err := r.completeDaemonSet(ds); err != nil {
				return nil, fmt.Errorf("DaemonSet %s: %w", ds.Name, err)
			}
		}
	}
	return objects, nil
}

// setOwner sets namespace, labels and owner reference. The reference does not block the deletion of the policy: that
// would need permissions on the policy's finalizers.
func (r *renderer) setOwner(object manifest.Object) {
	if _, isClusterScoped := object.(*nodev1.RuntimeClass); !isClusterScoped {
		object.SetNamespace(r.context.Namespace)
	}
	all := object.GetLabels()
	if all == nil {
		all = map[string]string{}
	}
	all[labels.ManagedBy] = labels.ManagedByValue
	all[labels.Operand] = string(r.step.Operand.Name)
	object.SetLabels(all)
	object.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(r.owner)})
}

// OwnerReference is the reference to the policy that every object of the stack carries.
func OwnerReference(owner Owner) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1.ClusterPolicyKind.GroupVersion().String(),
		Kind:       v1.ClusterPolicyKind.Kind,
		Name:       owner.Name,
		UID:        types.UID(owner.UID),
		Controller: new(true),
	}
}
