package invariant

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

// kinds are the resources that the operator writes.
var kinds = map[string]string{
	"nodes":           history.Node,
	"clusterpolicies": history.ClusterPolicy,
	"daemonsets":      history.DaemonSet,
	"configmaps":      history.ConfigMap,
	"services":        history.Service,
	"runtimeclasses":  history.RuntimeClass,
}

// ownership: a write is compared with the objects that existed when it began.
func ownership(r *Run, f *found) {
	for _, write := range r.Writes {
		kind, known := kinds[write.Resource]
		ofStack := known && kind != history.Node && kind != history.ClusterPolicy
		switch {
		case write.Verb == fault.DeleteCollection:
			f.add(write.String(), 0, "a deletion of a collection")
		case isSlots(write):
		case !ofStack || write.Code >= 300 || write.Code == 0:
		case write.Verb == fault.Delete:
			r.judgeDeletion(write, kind, f)
		default:
			r.judgeOverwriting(write, kind, f)
		}
	}
}

func (r *Run) judgeDeletion(write fault.Record, kind string, f *found) {
	object := r.objectAt(write, kind)
	switch {
	case object == nil:
	case !IsOurs(object):
		f.add(write.String(), 0, "no policy controls it")
	case !bytes.Contains(write.Body, []byte(object.GetUID())):
		f.add(write.String(), 0, "the deletion does not name the UID")
	}
}

func (r *Run) judgeOverwriting(write fault.Record, kind string, f *found) {
	object := r.objectAt(write, kind)
	if object == nil || IsOurs(object) {
		return
	}
	// An orphan of a deleted policy is adopted.
	if metav1.GetControllerOf(object) == nil && object.GetAnnotations()[labels.Digest] != "" {
		return
	}
	f.add(write.String(), 0, "it overwrites an object that no policy controls")
}

// IsOurs reports whether a policy controls an object of the stack.
func IsOurs(object client.Object) bool {
	controller := metav1.GetControllerOf(object)
	return controller != nil && controller.Kind == history.ClusterPolicy && object.GetLabels()[labels.Operand] != ""
}

// objectAt returns the revisions of an object that existed when a write began.
func (r *Run) objectAt(write fault.Record, kind string) client.Object {
	key := history.Key{Kind: kind, Namespace: write.Namespace, Name: write.Name}
	object := r.Begin[key]
	for _, event := range r.Events {
		if event.At.After(write.Begin) {
			break
		}
		switch {
		case event.Key != key:
		case event.Gone:
			object = nil
		default:
			object = event.Object
		}
	}
	return object
}

// userData: objects of users, their labels, annotations and taints on nodes, and what the operator writes to nodes.
func userData(r *Run, f *found) {
	seeds := map[history.Key]string{}
	for _, key := range r.Seeds {
		seeds[key] = content(r.Begin[key])
	}
	r.replay(func(_ history.World, event history.Event) {
		if want, is := seeds[event.Key]; is && (event.Gone || content(event.Object) != want) {
			f.at(event, "an object of a user was changed or deleted")
		}
		before, is := event.Before.(*corev1.Node)
		after, still := event.Object.(*corev1.Node)
		if is && still && !event.Gone && before.UID == after.UID && users(before) != users(after) {
			f.at(event, "the user's labels, annotations and taints on the node were %s and are %s", users(before), users(after))
		}
	})
	for _, write := range r.Writes {
		if key := foreignKey(write); key != "" {
			f.add(write.String(), 0, "the operator writes "+key)
		}
	}
}

// content returns the fields of an object that a user has written.
func content(object client.Object) string {
	if object == nil {
		return ""
	}
	copied, is := object.DeepCopyObject().(client.Object)
	if !is {
		return ""
	}
	copied.SetResourceVersion("")
	copied.SetManagedFields(nil)
	if ds, is := copied.(*appsv1.DaemonSet); is {
		ds.Status = appsv1.DaemonSetStatus{}
	}
	text, err := json.Marshal(copied)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// UserPrefix is the prefix of the labels, annotations and taints of users on nodes in a run, and UserValue their
// value.
const UserPrefix = "example.com/"

// users returns the labels, annotations and taints of users on a node.
func users(node *corev1.Node) string {
	var all []string
	for key, value := range node.Labels {
		all = append(all, "label "+key+"="+value)
	}
	for key, value := range node.Annotations {
		all = append(all, "annotation "+key+"="+value)
	}
	for _, taint := range node.Spec.Taints {
		all = append(all, "taint "+taint.ToString())
	}
	all = slices.DeleteFunc(all, func(text string) bool { return !strings.Contains(text, " "+UserPrefix) })
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// foreignKey returns a label or annotation of a Node in a write that the operator must not write.
func foreignKey(write fault.Record) string {
	if write.Resource != "nodes" {
		return ""
	}
	var patch struct {
		Metadata struct {
			Labels, Annotations map[string]any
		}
	}
	// A patch in another format has no such fields.
	if json.Unmarshal(write.Body, &patch) != nil {
		return ""
	}
	for key := range patch.Metadata.Labels {
		if !strings.HasPrefix(key, "nvidia.com/") && !strings.HasPrefix(key, labels.DiscoveryPrefix) && !strings.HasPrefix(
			key, labels.AnchorPrefix,
		) {
			return "the label " + key
		}
	}
	for key := range patch.Metadata.Annotations {
		if !strings.HasPrefix(key, "nvidia.com/gpu-operator.") && !strings.HasPrefix(key, labels.NFDPrefix) &&
			key != labels.UpgradeEnabled && key != labels.UpgradeInitialCordon {
			return "the annotation " + key
		}
	}
	return ""
}

// cordons: only users decide whether a node is schedulable, and driver upgrades.
func cordons(r *Run, f *found) {
	for _, write := range r.Writes {
		if r.MaxParallel == 0 && write.Resource == "nodes" && bytes.Contains(write.Body, []byte(`"unschedulable":`)) {
			f.add(write.String(), 0, "the operator writes spec.unschedulable")
		}
	}
	r.replay(func(_ history.World, event history.Event) {
		if node, is := event.Object.(*corev1.Node); is && !event.Gone && node.Name == r.Cordoned && !node.Spec.Unschedulable {
			f.at(event, "the cordon of a user was removed")
		}
	})
}

// locality: nodes that did not change.
func locality(r *Run, f *found) {
	if len(r.Only) == 0 {
		return
	}
	for _, write := range r.Writes {
		if write.Resource == "nodes" && write.Begin.After(r.Since) && !slices.Contains(r.Only, write.Name) {
			f.add("Node "+write.Name, 0, "the operator writes to it because of "+strings.Join(r.Only, ", "))
		}
	}
}

// rights: a denied request shows a missing permission of the installation.
func rights(r *Run, f *found) {
	for _, call := range r.Calls {
		if call.Code == 403 && !r.RightsRevoked {
			f.add(call.String(), 0, "it was denied")
		}
		if call.Resource == "secrets" && call.Namespace != r.Namespace {
			f.add(call.String(), 0, "a Secret outside the operator's namespace")
		}
	}
}
