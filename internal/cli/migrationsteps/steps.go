package migrationsteps

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// Action is what a step does to its object.
type Action string

// The actions.
const (
	// ActionKeep annotates an object, so that helm upgrade does not delete it. ActionRelease removes that annotation, and
	// those that name a release which is not this operator's.
	ActionKeep    Action = "keep"
	ActionRelease Action = "release"
	// ActionStop scales a Deployment to 0 and waits until its pods have ended.
	ActionStop Action = "stop"
	// ActionDisown removes the owner references to ClusterPolicies: otherwise the object is deleted with the policy.
	ActionDisown Action = "disown"
	ActionDelete Action = "delete"
	// ActionDeleteAll deletes all objects of a kind in a namespace.
	ActionDeleteAll Action = "deleteAll"
	// ActionRecordLayout records on Nodes that nvidia.com/mig.config is not a user's.
	ActionRecordLayout Action = "recordLayout"
	// ActionHandOver makes Node Feature Discovery list no label that node discovery writes too, on Nodes, and
	// ActionAwaitLabels waits until node discovery writes these labels. ActionRemoveLabels removes the others.
	ActionHandOver     Action = "handOver"
	ActionAwaitLabels  Action = "awaitLabels"
	ActionRemoveLabels Action = "removeLabels"
)

// Step changes one object, or Nodes.
type Step struct {
	Action          Action `json:"action"`
	cleanup.Object  `json:",inline"`
	ResourceVersion string `json:"-"`
	// Owners are the owner references that ActionDisown leaves.
	Owners []metav1.OwnerReference `json:"-"`
	// Selector selects the pods that ActionStop waits for.
	Selector string `json:"-"`
	// Annotations are those that ActionRelease removes.
	Annotations []string `json:"-"`
	// Nodes are those that a step is about; it has no Name then.
	Nodes []string `json:"nodes,omitempty"`
	// Patch is the merge patch of a step of the way back, or the object that ActionCreate creates. StatusPatch is that
	// of the status of the object, a strategic one for Nodes; nil for none.
	Patch       map[string]any `json:"-"`
	StatusPatch map[string]any `json:"-"`
}

// shipped are the accounts and roles that the installers of this operator have under the same name as NVIDIA's chart or
// operator: they become the installer's.
var shipped = map[string][]string{
	"ServiceAccount": {
		operatorName, "nvidia-container-toolkit", "nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia-device-plugin",
		"nvidia-driver", "nvidia-gpu-feature-discovery", "nvidia-mig-manager", "nvidia-node-status-exporter",
		"nvidia-operator-validator",
	},
	"Role": {
		operatorName, "nvidia-dcgm-exporter", "nvidia-gpu-feature-discovery", "nvidia-mig-manager",
		"nvidia-operator-validator",
	},
	"RoleBinding": {
		operatorName, "nvidia-dcgm-exporter", "nvidia-gpu-feature-discovery", "nvidia-mig-manager",
		"nvidia-operator-validator",
	},
	"ClusterRole":        {operatorName},
	"ClusterRoleBinding": {operatorName},
}

// leftoverKinds are the kinds of which the operator removes nothing of NVIDIA's, as it has no right to.
var leftoverKinds = []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}

// isShipped reports whether an installer of this operator has the object.
func isShipped(object *unstructured.Unstructured) bool {
	return slices.Contains(shipped[object.GetKind()], object.GetName())
}

// ownersLeft returns the owner references of an object other than those to ClusterPolicies and NVIDIADriver objects.
func ownersLeft(object *unstructured.Unstructured) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(owner metav1.OwnerReference) bool {
		return owner.Kind == kindPolicy || owner.Kind == kindDriver
	})
}

// step returns a step for an object.
func step(action Action, object *unstructured.Unstructured) Step {
	return Step{Action: action, Object: cleanup.Describe(object), ResourceVersion: object.GetResourceVersion()}
}

// Stop returns the steps before this operator is installed, in order: what Helm owns is kept, NVIDIA's operator is
// stopped and its Deployment removed, whose selector the installer could not change, the MIG layouts that it has set
// are recorded, and the accounts of the operands are made independent of the policy. Steps that have been taken are
// left out.
func (c *Cluster) Stop() []Step {
	theirs, _ := c.deployments()
	var steps []Step
	if len(theirs) > 0 {
		steps = c.keep()
	}
	for _, deployment := range theirs {
		steps = append(steps, stopSteps(deployment)...)
	}
	return append(append(steps, c.recordLayouts()...), c.disown()...)
}

// stopSteps returns the steps that delete a Deployment once its pods have ended.
func stopSteps(deployment *unstructured.Unstructured) []Step {
	stop := step(ActionStop, deployment)
	matched, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "selector", "matchLabels")
	stop.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: matched})
	return []Step{stop, step(ActionDelete, deployment)}
}

// keep returns the steps that keep what the releases of NVIDIA's chart own.
func (c *Cluster) keep() []Step {
	releases := c.releases()
	var steps []Step
	for _, object := range c.sorted() {
		if releases[releaseOf(object)] && object.GetAnnotations()[ResourcePolicy] != Keep {
			steps = append(steps, step(ActionKeep, object))
		}
	}
	return steps
}

// disown returns the steps that make the accounts and roles that this operator's installers have independent of the
// policy.
func (c *Cluster) disown() []Step {
	var steps []Step
	for _, object := range c.sorted() {
		if isTheirs(object) && isShipped(object) {
			disown := step(ActionDisown, object)
			disown.Owners = ownersLeft(object)
			steps = append(steps, disown)
		}
	}
	return steps
}

// Finish returns the steps after this operator has taken over, in order. Node Feature Discovery of NVIDIA's chart
// stays: HandOver replaces it.
func (c *Cluster) Finish() []Step {
	steps := c.disown()
	releases := c.releases()
	_, own := c.deployments()
	stale := c.staleFeatures()
	for _, object := range c.sorted() {
		others := releases[releaseOf(object)]
		switch {
		case slices.Contains(stale, object):
			steps = append(steps, step(ActionDelete, object))
		case isDiscovery(object):
		case releases[recordOf(object)], isLeft(object, others) && !c.isUsed(object),
			len(own) > 0 && isUnclaimed(object):
			steps = append(steps, step(ActionDelete, object))
		case others, object.GetAnnotations()[ResourcePolicy] == Keep && releaseOf(object) != (Release{}):
			release := step(ActionRelease, object)
			release.Annotations = []string{ResourcePolicy}
			if others {
				release.Annotations = append(release.Annotations, releaseName, releaseNamespace)
			}
			steps = append(steps, release)
		}
	}
	return steps
}

// isLeft reports whether an object is an account or a role of NVIDIA's operator, or of its release, that is not used.
func isLeft(object *unstructured.Unstructured, ofRelease bool) bool {
	return slices.Contains(leftoverKinds, object.GetKind()) && (ofRelease || isTheirs(object)) && !isShipped(object)
}

// isUsed reports whether a driver pod that an NVIDIADriver object has started has this account, or the account of the
// same name that these rights are for: the pod needs them when its node restarts. The account of all other drivers gets
// its rights from an installer.
func (c *Cluster) isUsed(object *unstructured.Unstructured) bool {
	name := object.GetName()
	return !slices.Contains(shipped["ServiceAccount"], name) &&
		slices.ContainsFunc(c.ofKind(kindPod), func(pod *unstructured.Unstructured) bool {
			account, _, _ := unstructured.NestedString(pod.Object, "spec", "serviceAccountName")
			return account == name
		})
}

// recordOf returns the release of which a Secret is Helm's record; the zero value for none. Helm 3 and 4 would delete
// what the record names, also if another owner has taken it over since.
func recordOf(object *unstructured.Unstructured) Release {
	if object.GetKind() != "Secret" || object.GetLabels()["owner"] != "helm" {
		return Release{}
	}
	return Release{Name: object.GetLabels()["name"], Namespace: object.GetNamespace()}
}

// sorted returns all objects in the order of kinds, namespaces and names.
func (c *Cluster) sorted() []*unstructured.Unstructured {
	var kinds []string
	for _, object := range c.Objects {
		if kind := object.GetKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	var found []*unstructured.Unstructured
	for _, kind := range kinds {
		found = append(found, c.ofKind(kind)...)
	}
	return found
}
