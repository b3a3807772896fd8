package nvidiadriver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// ToNodePools returns a copy of the policy that has the drivers of the objects as node pools. Each node has the same
// driver as before, except that GPU nodes which no object selects get spec.driver. It fails with one error for each
// field that node pools cannot express.
func ToNodePools(policy *v1.ClusterPolicy, objects []v1alpha1.NVIDIADriver) (*v1.ClusterPolicy, error) {
	// One that is being deleted declares no driver.
	objects = inOrder(slices.DeleteFunc(slices.Clone(objects), func(object v1alpha1.NVIDIADriver) bool {
		return object.DeletionTimestamp != nil
	}))
	if err := errors.Join(checkUsed(policy), checkFields(objects), checkSelectors(policy, objects)); err != nil {
		return nil, err
	}
	// The driver of the policy stays if that is possible: then the nodes that have it keep their pods.
	converted, err := withNodePools(policy, policy.Spec, objects)
	if err == nil {
		return converted, nil
	}
	without := policy.Spec
	without.GDS, without.GDRCopy, without.Driver = nil, nil, nil
	if policy.Spec.Driver != nil && policy.Spec.Driver.Enabled != nil {
		without.Driver = &v1.DriverSpec{Enabled: policy.Spec.Driver.Enabled}
	}
	return withNodePools(policy, without, objects)
}

// inOrder returns the objects sorted by name, those of all GPU nodes last, as a node belongs to the first node pool.
func inOrder(objects []v1alpha1.NVIDIADriver) []v1alpha1.NVIDIADriver {
	return slices.SortedFunc(slices.Values(objects), func(a, b v1alpha1.NVIDIADriver) int {
		if isOfAll(&a) != isOfAll(&b) {
			return cmp.Compare(len(b.Spec.NodeSelector), len(a.Spec.NodeSelector))
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func isOfAll(object *v1alpha1.NVIDIADriver) bool { return len(object.Spec.NodeSelector) == 0 }

// SelectAll reports whether the objects select every GPU node.
func SelectAll(objects []v1alpha1.NVIDIADriver) bool {
	return slices.ContainsFunc(objects, func(object v1alpha1.NVIDIADriver) bool { return isOfAll(&object) })
}

// checkUsed fails if the policy does not use NVIDIADriver objects.
func checkUsed(policy *v1.ClusterPolicy) error {
	if !*effective.Of(policy.Spec).Driver.UseNvidiaDriverCRD {
		return refuse(policy, "spec.driver.useNvidiaDriverCRD", "is not true, so that it uses no NVIDIADriver: set it")
	}
	return nil
}

// checkFields fails for fields of objects that a node pool does not have.
func checkFields(objects []v1alpha1.NVIDIADriver) error {
	var found []error
	for i := range objects {
		_, problems := Pool(objects[i])
		for _, problem := range problems {
			found = append(found, refuse(&objects[i], problem.Field, problem.Message))
		}
	}
	return errors.Join(found...)
}

// checkSelectors fails if a node would get another driver than its object's because of the order of node pools.
func checkSelectors(policy *v1.ClusterPolicy, objects []v1alpha1.NVIDIADriver) error {
	var found []error
	for i := range objects {
		for j := range objects[:i] {
			if conflict(&objects[i], &objects[j]) {
				found = append(found, refuse(&objects[i], "spec.nodeSelector",
					fmt.Sprintf("selects nodes of NVIDIADriver %s too: change one of them", objects[j].Name)))
			}
		}
		found = append(found, checkOwnPools(policy, &objects[i]))
	}
	for i, pool := range policy.Spec.NodePools {
		if pool.Driver != nil {
			found = append(found, refuse(policy, fmt.Sprintf("spec.nodePools[%d].driver", i),
				"excludes spec.driver.useNvidiaDriverCRD: remove it"))
		}
	}
	return errors.Join(found...)
}

// conflict reports whether every node of one object belongs to the other one, too.
func conflict(one, other *v1alpha1.NVIDIADriver) bool {
	if one.Spec.Default || other.Spec.Default {
		return one.Spec.Default && other.Spec.Default
	}
	return includes(one, other) || includes(other, one)
}

// checkOwnPools fails if a node of an object may belong to a node pool that the policy has already.
func checkOwnPools(policy *v1.ClusterPolicy, object *v1alpha1.NVIDIADriver) error {
	var found []error
	for i, pool := range policy.Spec.NodePools {
		if !isOfAll(object) && !maps.Equal(pool.NodeSelector, object.Spec.NodeSelector) &&
			!areDisjoint(pool.NodeSelector, object.Spec.NodeSelector) {
			found = append(found, refuse(policy, fmt.Sprintf("spec.nodePools[%d].nodeSelector", i), fmt.Sprintf(
				"may select nodes of NVIDIADriver %s, and a node has one node pool only: give it the same labels, "+
					"or another value of one of them", object.Name)))
		}
	}
	return errors.Join(found...)
}

// includes reports whether every node that one object selects is selected by the other one, too.
func includes(one, other *v1alpha1.NVIDIADriver) bool {
	for key, value := range other.Spec.NodeSelector {
		if has, exists := one.Spec.NodeSelector[key]; !exists || has != value {
			return false
		}
	}
	return true
}

// areDisjoint reports whether no node can have the labels of both selectors.
func areDisjoint(a, b v1.NodePoolSelector) bool {
	for key, value := range a {
		if other, exists := b[key]; exists && other != value {
			return true
		}
	}
	return false
}

// withNodePools returns the policy with a spec, below which the node pools of the objects are. It fails if that changes
// a driver.
func withNodePools(
	policy *v1.ClusterPolicy, below v1.ClusterPolicySpec, objects []v1alpha1.NVIDIADriver,
) (*v1.ClusterPolicy, error) {
	converted := policy.DeepCopy()
	converted.Spec = *below.DeepCopy()
	spec := &converted.Spec
	if spec.Driver != nil {
		spec.Driver.UseNvidiaDriverCRD, spec.Driver.NodeSelector = nil, nil
	}
	declared := declaredByName(policy.Spec, objects)
	base := effective.Of(*spec)
	names := map[string]string{}
	for i := range objects {
		// Only nodes that have the driver of the policy now have it as nodes of a node pool without an own driver.
		object := declared[objects[i].Name]
		shared := object.SameDriver(effective.Of(policy.Spec))
		pool := poolAbove(base, objects[i], object, shared)
		if err := addPool(converted, pool, &objects[i], names); err != nil {
			return nil, err
		}
	}
	if err := checkPools(converted, declared, names); err != nil {
		return nil, err
	}
	return converted, nil
}

// poolAbove returns the node pool of an object above a spec. One that shares the driver of the spec does not override
// it, so that its DaemonSet stays.
func poolAbove(
	base effective.Spec, object v1alpha1.NVIDIADriver, declared operand.NVIDIADriver, shared bool,
) v1.NodePoolSpec {
	pool, _ := Pool(object)
	usual := effective.Of(v1.ClusterPolicySpec{}).DaemonSets.PriorityClassName
	switch {
	case !shared || !declared.SameDriver(base):
		if pool.Driver.PriorityClassName == "" && base.DaemonSets.PriorityClassName != usual {
			pool.Driver.PriorityClassName = usual
		}
	case reflect.DeepEqual(base.Driver.UpgradePolicy, declared.Spec.Driver.UpgradePolicy):
		pool.Driver = nil
	default:
		pool.Driver = &v1.NodePoolDriverSpec{UpgradePolicy: pool.Driver.UpgradePolicy}
	}
	return pool
}

// addPool adds the node pool of an object to those of the policy, and to names, which has the object of each node pool.
// Node pools of the policy get the driver of the object that has their nodeSelector, or else of that of all GPU nodes.
func addPool(
	policy *v1.ClusterPolicy, pool v1.NodePoolSpec, object *v1alpha1.NVIDIADriver, names map[string]string,
) error {
	own := policy.Spec.NodePools
	for i := range own {
		if same := maps.Equal(own[i].NodeSelector, pool.NodeSelector); same || isOfAll(object) && names[own[i].Name] == "" {
			own[i].Driver, names[own[i].Name] = pool.Driver.DeepCopy(), object.Name
			if same {
				return nil
			}
		}
	}
	if isOfAll(object) && pool.Driver == nil {
		return nil // The nodes of no node pool have the driver of the spec.
	}
	if slices.ContainsFunc(own, func(other v1.NodePoolSpec) bool { return other.Name == pool.Name }) {
		return refuse(object, "metadata.name",
			fmt.Sprintf("is %s as a node pool, which the policy has for other nodes: rename that", pool.Name))
	}
	policy.Spec.NodePools, names[pool.Name] = append(own, pool), object.Name
	return nil
}

// checkPools fails for each field in which the driver of a node pool differs from that of its object.
func checkPools(
	policy *v1.ClusterPolicy, declared map[string]operand.NVIDIADriver, names map[string]string,
) error {
	var found []error
	base := effective.Of(policy.Spec)
	for _, pool := range base.NodePools {
		name, converted := names[pool.Name]
		if !converted {
			continue
		}
		object := declared[name]
		for _, path := range differences(
			driverOf(object.Spec, object.Driver.PodSecurityContext), driverOf(base.ForNodePool(pool), securityContext(pool)),
		) {
			found = append(found, refuse(policy, inherited(path), fmt.Sprintf(
				"differs for NVIDIADriver %s, and a node pool cannot have another value: remove it", name)))
		}
	}
	if selector := base.DaemonSets.NodeSelector; len(selector) > 0 {
		found = append(found, refuse(policy, "spec.daemonsets.nodeSelector",
			"applies to the drivers of node pools, and not to those of NVIDIADrivers: remove it"))
	}
	return errors.Join(found...)
}

// inherited returns the path in spec.daemonsets of a label or annotation in which drivers differ: the others are those
// of the node pool.
func inherited(path string) string {
	for _, block := range []string{"labels.", "annotations."} {
		if key, is := strings.CutPrefix(path, "spec.driver."+block); is {
			return "spec.daemonsets." + block + key
		}
	}
	return path
}

func declaredByName(policy v1.ClusterPolicySpec, objects []v1alpha1.NVIDIADriver) map[string]operand.NVIDIADriver {
	byName := map[string]operand.NVIDIADriver{}
	for _, driver := range Declared(policy, objects) {
		byName[driver.Name] = driver
	}
	return byName
}
