package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// State is a world without values that differ in each run, such as UIDs, versions and times: a value for each path.
type State map[string]string

// volatile are fields that differ in each run, at any path.
var volatile = []string{
	"uid", "resourceVersion", "creationTimestamp", "generation", "observedGeneration", "lastTransitionTime",
	"lastHeartbeatTime", "lastProbeTime", "since", "time", "deprecated.daemonset.template.generation"}

// StateOf returns the state of a world: all objects of the cluster and of some namespaces. Pods are represented by
// the containers of each operand on each node, as their names are random.
func StateOf(w World, namespaces ...string) (State, error) {
	state := State{}
	for key, object := range w {
		// The certificate of the cluster.
		if key.Namespace != "" && !slices.Contains(namespaces, key.Namespace) || key.Name == "kube-root-ca.crt" {
			continue
		}
		if pod, is := object.(*corev1.Pod); is {
			place := fmt.Sprintf("Pod %s on %s", pod.Labels[labels.Operand], pod.Spec.NodeName)
			state[place+" phase"] = string(pod.Status.Phase)
			for i, container := range pod.Spec.Containers {
				state[fmt.Sprintf("%s image %d", place, i)] = container.Image
			}
			continue
		}
		fields, err := fieldsOf(object)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		state.put(key.String(), fields)
	}
	return state, nil
}

// fieldsOf returns the fields of an object for the comparison of states.
func fieldsOf(object client.Object) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	// Objects from a watch have apiVersion and kind, those from a list do not; the key has them.
	delete(fields, "apiVersion")
	delete(fields, "kind")
	if metadata, is := fields["metadata"].(map[string]any); is {
		metadata["managedFields"] = owned(object)
		dropGeneration(metadata)
	}
	dropUpgrades(fields)
	if node, is := object.(*corev1.Node); is {
		fields["status"] = map[string]any{
			"allocatable": node.Status.Allocatable[labels.ResourceGPU], "gpuReady": conditionOf(node),
		}
	}
	return fields, nil
}

// dropGeneration removes from the object that records the applied spec what depends on the number of writes of the
// spec: the generation, and the digest of the object, which includes it.
func dropGeneration(metadata map[string]any) {
	annotations, is := metadata["annotations"].(map[string]any)
	if !is {
		return
	}
	applied, is := annotations[labels.AppliedSpec].(string)
	if !is {
		return
	}
	_, annotations[labels.AppliedSpec], _ = strings.Cut(applied, "-")
	delete(annotations, labels.Digest)
}

// dropUpgrades removes what is left of upgrades that are done: the record of a node, and their number in the status of
// the policy. It depends on what happened before, and nothing else does.
func dropUpgrades(fields map[string]any) {
	if metadata, is := fields["metadata"].(map[string]any); is {
		if annotations, is := metadata["annotations"].(map[string]any); is {
			record, _ := annotations[labels.UpgradeRecord].(string)
			if strings.Contains(record, `"state":"upgrade-done"`) {
				delete(annotations, labels.UpgradeRecord)
			}
		}
	}
	status, is := fields["status"].(map[string]any)
	if !is {
		return
	}
	upgrade, is := status["upgrade"].(map[string]any)
	if is && upgrade["pending"] == 0.0 && upgrade["inProgress"] == 0.0 && upgrade["failed"] == 0.0 {
		delete(status, "upgrade")
	}
}

// owned returns the fields of an object that the operator has written.
func owned(object client.Object) map[string]any {
	fields := map[string]any{}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == labels.FieldOwner && entry.FieldsV1 != nil {
			fields[string(entry.Operation)+" "+entry.Subresource] = withoutUpgrades(entry.FieldsV1.GetRawString())
		}
	}
	return fields
}

// withoutUpgrades returns a set of fields without those that dropUpgrades removes.
func withoutUpgrades(set string) string {
	fields := map[string]map[string]any{}
	if json.Unmarshal([]byte(set), &fields) != nil {
		return set
	}
	delete(fields["f:status"], "f:upgrade")
	if annotations, is := fields["f:metadata"]["f:annotations"].(map[string]any); is {
		delete(annotations, "f:"+labels.UpgradeRecord)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return set
	}
	return string(text)
}

func conditionOf(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == labels.ConditionGPUReady {
			return fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
		}
	}
	return ""
}

func (s State) put(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if !slices.Contains(volatile, name) {
				s.put(path+"."+name, field)
			}
		}
	case []any:
		for i, element := range value {
			s.put(fmt.Sprintf("%s[%d]", path, i), element)
		}
	case nil:
	default:
		s[path] = fmt.Sprint(value)
	}
}

// Differences returns the paths where two states differ, with both values, except those where the two states of mask
// differ too, which vary between undisturbed runs.
func Differences(want, got State, mask [2]State) []string {
	var found []string
	for _, path := range paths(want, got) {
		if want[path] != got[path] && mask[0][path] == mask[1][path] {
			found = append(found, fmt.Sprintf("%s: want %.200q, got %.200q", path, want[path], got[path]))
		}
	}
	return found
}

func paths(states ...State) []string {
	var all []string
	for _, state := range states {
		for path := range state {
			all = append(all, path)
		}
	}
	slices.SortFunc(all, strings.Compare)
	return slices.Compact(all)
}

// Counts returns the numbers of creations and deletions: of each object by name, and of the pods of each operand on
// each node.
func Counts(events []Event) map[string]int {
	counts := map[string]int{}
	for _, event := range events {
		name := event.String()
		if pod, is := event.Object.(*corev1.Pod); is {
			// A new pod is not bound yet; the DaemonSet controller sets the node in the affinity.
			name = "Pod of " + pod.Labels[labels.Operand]
		}
		switch {
		case event.Gone:
			counts["delete "+name]++
		case event.Before == nil:
			counts["create "+name]++
		}
	}
	return counts
}
