package nvidiadriver

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// driverOf returns the driver of a spec as its nodes get it, with its upgrades. Its pods have their own security
// context unless that is nil.
func driverOf(spec effective.Spec, own *corev1.PodSecurityContext) operand.DriverPods {
	found := operand.DriverPodsOf(spec, own)
	found.Driver.UpgradePolicy = spec.Driver.UpgradePolicy
	return found
}

func securityContext(pool v1.NodePoolSpec) *corev1.PodSecurityContext {
	if pool.Driver == nil {
		return nil
	}
	return pool.Driver.PodSecurityContext
}

// differences returns the paths of the fields of a policy in which two drivers differ, sorted.
func differences(a, b operand.DriverPods) []string {
	var paths []string
	var compare func(path string, a, b any)
	compare = func(path string, a, b any) {
		left, isMap := a.(map[string]any)
		right, isMapToo := b.(map[string]any)
		if !isMap && a != nil || !isMapToo && b != nil {
			if !reflect.DeepEqual(a, b) {
				paths = append(paths, path)
			}
		}
		keys := map[string]bool{}
		for key := range left {
			keys[key] = true
		}
		for key := range right {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compare(path+"."+key, left[key], right[key])
		}
	}
	compare("spec", tree(a), tree(b))
	return paths
}

// tree returns the fields of a part of an object. Empty fields are absent.
func tree[T any](part T) map[string]any {
	// Only values that JSON cannot express are errors.
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&part)
	return fields
}

// refuse returns the error for a field of an object that cannot be converted.
func refuse(object interface{ GetName() string }, field, message string) error {
	kind := "NVIDIADriver"
	if _, isPolicy := object.(*v1.ClusterPolicy); isPolicy {
		kind = v1.ClusterPolicyKind.Kind
	}
	return fmt.Errorf("%s %s: %s %s", kind, object.GetName(), field, message)
}
