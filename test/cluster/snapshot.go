package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// notCompared are the fields that a Snapshot leaves out: Kubernetes gives them to each object that is created or
// written. Beside them and the kinds that Objects leaves out, it does not have what a kubelet reports of its Node.
var notCompared = []string{"uid", "resourceVersion", "managedFields", "creationTimestamp"}

// kubeletStatus is what a Snapshot has of a Node's status: the types of its conditions, which are not only a kubelet's.
const kubeletStatus = "conditions"

// labelByController is a deprecated label that the node lifecycle controller adds to each Node.
const labelByController = "beta.kubernetes.io/arch"

// StableSnapshot returns a Snapshot once the nodes are ready and have what Kubernetes itself writes on them.
func StableSnapshot(ctx context.Context, cfg *rest.Config) (found map[string]string, err error) {
	err = wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		last := found
		found, err = Snapshot(ctx, cfg)
		for name, text := range found {
			isNode := strings.HasPrefix(name, "Node /")
			if isNode && (strings.Contains(text, corev1.TaintNodeNotReady) || !strings.Contains(text, labelByController)) {
				return false, err
			}
		}
		return err == nil && differences(last, found) == "", err
	})
	return found, err
}

// Snapshot returns all objects of Objects as YAML, by kind, namespace and name, so that two states of a cluster can be
// compared.
func Snapshot(ctx context.Context, cfg *rest.Config) (map[string]string, error) {
	objects, err := Objects(ctx, cfg)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if object.GetKind() == "Node" {
			if err := trimStatus(object); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, field := range notCompared {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found[name] = string(text)
	}
	return found, nil
}

// Restored takes a StableSnapshot, and returns a function that fails the test unless the whole cluster is soon as it
// was then: at most 3 minutes later, as the garbage collector deletes some objects after what these depend on, and the
// pods of a deleted node after 40 to 60 s. It leaves out the objects that it is called with, such as "Node /gpu-0".
func Restored(tb testing.TB, cfg *rest.Config) func(except ...string) {
	tb.Helper()
	before, err := StableSnapshot(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("taking a snapshot of the cluster: %v", err)
	}
	return func(except ...string) {
		tb.Helper()
		for _, name := range except {
			delete(before, name)
		}
		if err := AwaitSnapshot(tb.Context(), cfg, before); err != nil {
			tb.Fatal(err)
		}
		tb.Logf("%d objects are as before", len(before))
	}
}

// AwaitSnapshot waits until the cluster is as it was in a Snapshot, for at most 3 minutes. The error has the
// differences that are left, - before and + now.
func AwaitSnapshot(ctx context.Context, cfg *rest.Config, before map[string]string) error {
	diff := ""
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			now, err := Snapshot(ctx, cfg)
			if err == nil {
				diff = differences(before, now)
			}
			return err == nil && diff == "", err
		})
	if err != nil {
		return fmt.Errorf("the cluster is not as before: %w\n%s", err, diff)
	}
	return nil
}

// differences returns the objects that exist in one snapshot only, and the changed lines of others.
func differences(before, now map[string]string) string {
	all := map[string]string{}
	maps.Copy(all, before)
	maps.Copy(all, now)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, there := before[name]
		is, here := now[name]
		switch {
		case !here:
			found = append(found, "- "+name)
		case !there:
			found = append(found, "+ "+name)
		case was != is:
			found = append(found, name+": "+cmp.Diff(strings.Split(was, "\n"), strings.Split(is, "\n")))
		}
	}
	return strings.Join(found, "\n")
}

func trimStatus(node *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(node.Object, "status", kubeletStatus)
	if err != nil {
		return err
	}
	types := make([]string, 0, len(conditions))
	for i := range conditions {
		if condition, isMap := conditions[i].(map[string]any); isMap {
			types = append(types, fmt.Sprint(condition["type"]))
		}
	}
	slices.Sort(types)
	node.Object["status"] = map[string]any{kubeletStatus: types}
	return nil
}
