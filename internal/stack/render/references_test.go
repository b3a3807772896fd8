package render_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// A ConfigMap or Secret without which a pod cannot start is either rendered by the operand or a declared reference of
// the spec, so that a missing one is reported and a changed one is noticed.
func TestPodsNeedOnlyDeclaredReferences(t *testing.T) {
	all := catalogue(t)
	found := 0
	for name, scenario := range scenarios {
		p := scenario.plan(t)
		for operandName, objects := range scenario.objects(t) {
			o, _ := all.Find(operandName)
			var declared []operand.Reference
			inputs := []operand.Input{p.Input}
			for _, pool := range p.NodePools {
				inputs = append(inputs, p.InputForNodePool(o, pool.Name))
			}
			for _, in := range inputs {
				for _, use := range o.UsesOf(in) {
					declared = append(declared, use.Reference)
				}
			}
			for _, object := range objects {
				if _, isConfigMap := object.(*corev1.ConfigMap); isConfigMap {
					declared = append(declared, operand.Reference{Kind: operand.ConfigMap, Name: object.GetName()})
				}
			}
			for _, needed := range neededBy(objects) {
				found++
				if !slices.Contains(declared, needed) {
					t.Errorf("%s: pods of %s need %s", name, operandName, needed)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d references: the check is broken", found)
	}
}

// templates are the digests of all pod templates, by operand.
func (s situation) templates(t *testing.T) map[operand.Name][]string {
	t.Helper()
	digests := map[operand.Name][]string{}
	for name, sets := range s.daemonSets(t) {
		for _, ds := range sets {
			digests[name] = append(digests[name], ds.Spec.Template.Annotations[labels.TemplateDigest])
		}
	}
	return digests
}

// neededBy returns the ConfigMaps and Secrets without which the pods of these objects do not start.
func neededBy(objects []manifest.Object) []operand.Reference {
	var needed []operand.Reference
	add := func(kind operand.ReferenceKind, name string, optional *bool) {
		if name != "" && !ptr.Deref(optional, false) {
			needed = append(needed, operand.Reference{Kind: kind, Name: name})
		}
	}
	for _, object := range objects {
		ds, isDaemonSet := object.(*appsv1.DaemonSet)
		if !isDaemonSet {
			continue
		}
		pod := ds.Spec.Template.Spec
		for _, volume := range pod.Volumes {
			if source := volume.ConfigMap; source != nil {
				add(operand.ConfigMap, source.Name, source.Optional)
			}
			if source := volume.Secret; source != nil {
				add(operand.Secret, source.SecretName, source.Optional)
			}
		}
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, from := range container.EnvFrom {
				if from.SecretRef != nil {
					add(operand.Secret, from.SecretRef.Name, from.SecretRef.Optional)
				}
				if from.ConfigMapRef != nil {
					add(operand.ConfigMap, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
				}
			}
		}
	}
	return needed
}

// Changed contents of a reference make only pods of the operands that use it outdated.
func TestChangedContentsChangeTheirUsersOnly(t *testing.T) {
	spec := v1.ClusterPolicySpec{
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "shared"}},
		Driver:       &v1.DriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "modules"}, SecretEnv: "modules"},
	}
	contents := func(shared, modules string) map[operand.Reference]operand.Content {
		return map[operand.Reference]operand.Content{
			{Kind: operand.ConfigMap, Name: "shared"}: {
				Digest: shared,
			}, {Kind: operand.ConfigMap, Name: "modules"}: {Digest: modules},
			{Kind: operand.Secret, Name: "modules"}: {Digest: "3"},
		}
	}
	changed := func(now map[operand.Reference]operand.Content) []operand.Name {
		before, after := situation{
			spec:     spec,
			contents: contents("1", "2"),
		}.templates(
			t,
		), situation{
			spec:     spec,
			contents: now,
		}.templates(
			t,
		)
		var names []operand.Name
		for name, digests := range before {
			if !slices.Equal(digests, after[name]) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := changed(contents("1", "2")); len(got) != 0 {
		t.Errorf("the same contents change %v", got)
	}
	// Only nodes that use the changed configuration get new pods: the node controller replaces them.
	if got := changed(contents("9", "2")); len(got) != 0 {
		t.Errorf("another configuration of the plugin changes %v", got)
	}
	if got, want := changed(contents("1", "9")), []operand.Name{"driver"}; !slices.Equal(got, want) {
		t.Errorf("other parameters of kernel modules change %v, want %v", got, want)
	}
}
