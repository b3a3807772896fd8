package migrationsteps

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// Annotations and labels of Helm and of the Operator Lifecycle Manager.
const (
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
	// ResourcePolicy with the value Keep makes helm upgrade leave an object that the new chart does not have.
	ResourcePolicy = "helm.sh/resource-policy"
	Keep           = "keep"
	olmOwner       = "olm.owner"
)

const (
	kindPolicy     = "ClusterPolicy"
	kindDriver     = "NVIDIADriver"
	kindPod        = "Pod"
	kindDaemonSet  = "DaemonSet"
	kindDeployment = "Deployment"
	kindNode       = "Node"
	// discoveryName is the label app.kubernetes.io/name of Node Feature Discovery in NVIDIA's chart.
	discoveryName = "node-feature-discovery"
	operatorName  = "gpu-operator"
)

// Cluster has the objects of a cluster that a migration depends on, of any kind and in any order. Its pods are those of
// drivers.
type Cluster struct{ Objects []*unstructured.Unstructured }

// Release is a release of Helm.
type Release struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// releaseOf returns the release that owns an object; the zero value for none.
func releaseOf(object *unstructured.Unstructured) Release {
	annotations := object.GetAnnotations()
	if annotations[releaseName] == "" {
		return Release{}
	}
	return Release{Name: annotations[releaseName], Namespace: annotations[releaseNamespace]}
}

// ofKind returns the objects of a kind.
func (c *Cluster) ofKind(kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range c.Objects {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return found
}

// container returns the container of a Deployment that runs an operator for ClusterPolicies, and whether it is this
// one; nil if it has none.
func container(deployment *unstructured.Unstructured) (found map[string]any, own bool) {
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	for _, entry := range containers {
		fields, isMap := entry.(map[string]any)
		image, _ := fields["image"].(string)
		if !isMap || deployment.GetName() != operatorName && baseName(image) != operatorName {
			continue
		}
		variables, _ := fields["env"].([]any)
		return fields, slices.ContainsFunc(variables, func(variable any) bool {
			named, _ := variable.(map[string]any)
			return named["name"] == preview.OwnVariable
		})
	}
	return nil, false
}

// baseName returns the last part of an image's name, without tag and digest.
func baseName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	base, _, _ := strings.Cut(path.Base(image), ":")
	return base
}

// deployments returns those of NVIDIA's operator, and those of this one.
func (c *Cluster) deployments() (theirs, own []*unstructured.Unstructured) {
	for _, deployment := range c.ofKind(kindDeployment) {
		switch found, isOwn := container(deployment); {
		case found == nil || isDiscovery(deployment):
		case isOwn:
			own = append(own, deployment)
		default:
			theirs = append(theirs, deployment)
		}
	}
	return theirs, own
}

// isDiscovery reports whether an object belongs to the Node Feature Discovery of NVIDIA's chart, or is for it.
func isDiscovery(object *unstructured.Unstructured) bool {
	return object.GetLabels()[labels.Name] == discoveryName || object.GroupVersionKind().Group == nfdGroup
}

// isTheirs reports whether NVIDIA's operator has made an object: a ClusterPolicy or an NVIDIADriver object owns it, and
// this operator has not taken it over.
func isTheirs(object *unstructured.Unstructured) bool {
	return len(ownersLeft(object)) < len(object.GetOwnerReferences()) && !labels.IsApplied(object)
}

// releases returns the releases of Helm that NVIDIA's operator, its policies and its discovery are from, without that
// of this operator.
func (c *Cluster) releases() map[Release]bool {
	theirs, own := c.deployments()
	found := map[Release]bool{}
	for _, objects := range [][]*unstructured.Unstructured{theirs, c.ofKind(kindPolicy), c.Objects} {
		for _, object := range objects {
			if object.GetAnnotations()[ResourcePolicy] == Keep || object.GetKind() == kindPolicy ||
				slices.Contains(theirs, object) {
				found[releaseOf(object)] = true
			}
		}
	}
	delete(found, Release{})
	for _, deployment := range own {
		delete(found, releaseOf(deployment))
	}
	return found
}

// described returns the names of objects, in the order of kinds, namespaces and names.
func described(objects []*unstructured.Unstructured) []cleanup.Object {
	var names []cleanup.Object
	for _, object := range objects {
		names = append(names, cleanup.Describe(object))
	}
	slices.SortFunc(names, func(a, b cleanup.Object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return names
}

// Namespace returns that of NVIDIA's operator; empty if it is not found.
func (c *Cluster) Namespace() string {
	theirs, _ := c.deployments()
	if len(theirs) == 0 {
		return ""
	}
	return theirs[0].GetNamespace()
}

// ActivePolicy returns the active policy; nil for none. It is one with the finalizer of this operator, or else the
// oldest.
func (c *Cluster) ActivePolicy() *unstructured.Unstructured {
	policies := c.ofKind(kindPolicy)
	if len(policies) == 0 {
		return nil
	}
	return slices.MinFunc(policies, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(inactive(a), inactive(b)), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time))
	})
}

// inactive returns 0 for a policy that has been active under this operator, else 1.
func inactive(policy *unstructured.Unstructured) int {
	if slices.Contains(policy.GetFinalizers(), labels.RemovalFinalizer) {
		return 0
	}
	return 1
}
