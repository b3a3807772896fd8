package nvidiadriver

import (
	"errors"
	"fmt"
	"maps"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// ToObjects returns the objects that declare the drivers of a policy, and a copy of the policy that uses them. Each
// node has the same driver as before. It fails with one error for each field that objects cannot express.
func ToObjects(policy *v1.ClusterPolicy) (*v1.ClusterPolicy, []v1alpha1.NVIDIADriver, error) {
	spec := effective.Of(policy.Spec)
	switch {
	case !*spec.Driver.Enabled:
		return nil, nil, refuse(policy, "spec.driver.enabled", "is false, so that there is no driver to declare")
	case *spec.Driver.UseNvidiaDriverCRD:
		return nil, nil, refuse(policy, "spec.driver.useNvidiaDriverCRD", "is true already")
	}
	if err := checkOrder(policy, spec); err != nil {
		return nil, nil, err
	}
	objects := Drivers(policy.Spec)
	converted := policy.DeepCopy()
	if converted.Spec.Driver == nil {
		converted.Spec.Driver = &v1.DriverSpec{}
	}
	converted.Spec.Driver.UseNvidiaDriverCRD = new(true)
	for i := range converted.Spec.NodePools {
		converted.Spec.NodePools[i].Driver = nil
	}
	if err := checkObjects(policy, spec, declaredByName(converted.Spec, objects)); err != nil {
		return nil, nil, err
	}
	return converted, objects, nil
}

// checkOrder fails if objects could not say which driver a node gets: they have no order, and no common nodeSelector.
func checkOrder(policy *v1.ClusterPolicy, spec effective.Spec) error {
	var found []error
	drivers := 0
	for i, pool := range spec.NodePools {
		if pool.Driver == nil {
			continue
		}
		drivers++
		for _, before := range spec.NodePools[:i] {
			if areDisjoint(before.NodeSelector, pool.NodeSelector) ||
				before.Driver != nil && maps.Equal(pool.NodeSelector, gpuNodes) {
				continue
			}
			found = append(found, refuse(policy, fmt.Sprintf("spec.nodePools[%d].nodeSelector", i), fmt.Sprintf(
				"may select nodes of %s, and NVIDIADrivers have no order: give it another value of a label of %s",
				before.Name, before.Name)))
		}
	}
	for path, selector := range map[string]v1.Labels{
		"spec.driver.nodeSelector": spec.Driver.NodeSelector, "spec.daemonsets.nodeSelector": spec.DaemonSets.NodeSelector,
	} {
		if drivers > 0 && len(selector) > 0 {
			found = append(found, refuse(policy, path,
				"applies to the drivers of all node pools, and to no NVIDIADriver: add its labels to theirs, and remove it"))
		}
	}
	return errors.Join(found...)
}

// checkObjects fails for each field in which the driver that an object declares differs from that of the policy.
func checkObjects(policy *v1.ClusterPolicy, spec effective.Spec, declared map[string]operand.NVIDIADriver) error {
	var found []error
	seen := map[string]bool{}
	check := func(object operand.NVIDIADriver, want operand.DriverPods) {
		for _, path := range differences(want, driverOf(object.Spec, object.Driver.PodSecurityContext)) {
			if !seen[path] {
				found = append(found, refuse(policy, path, fmt.Sprintf(
					"is no field of NVIDIADriver, and its value would be lost for %s: remove it", object.Name)))
			}
			seen[path] = true
		}
	}
	for _, pool := range spec.NodePools {
		if object, exists := declared[pool.Name]; exists {
			check(object, driverOf(spec.ForNodePool(pool), securityContext(pool)))
		}
	}
	if object, exists := declared[DefaultName]; exists {
		check(object, driverOf(spec, nil))
	}
	return errors.Join(found...)
}
