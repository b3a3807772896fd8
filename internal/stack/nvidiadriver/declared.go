package nvidiadriver

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Declared returns the drivers that the objects declare, sorted by name; never nil. Each has the spec of the policy,
// but inherits nothing of spec.driver, spec.gds, spec.gdrcopy and spec.daemonsets, except whether drivers are enabled.
func Declared(policy v1.ClusterPolicySpec, objects []v1alpha1.NVIDIADriver) []operand.NVIDIADriver {
	below := policy
	below.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
	if policy.Driver != nil {
		below.Driver.Enabled = policy.Driver.Enabled
	}
	below.GDS, below.GDRCopy, below.DaemonSets, below.NodePools = nil, nil, nil, nil
	base := effective.Of(below)
	drivers := make([]operand.NVIDIADriver, 0, len(objects))
	for _, object := range objects {
		if object.DeletionTimestamp == nil && !selectorUnknown(object) {
			drivers = append(drivers, declared(base, object))
		}
	}
	slices.SortFunc(drivers, func(a, b operand.NVIDIADriver) int { return strings.Compare(a.Name, b.Name) })
	return drivers
}

// selectorUnknown reports whether an object that could not be decoded completely may have lost its nodeSelector: then
// it must not select all nodes, those of other objects too.
func selectorUnknown(object v1alpha1.NVIDIADriver) bool {
	return object.Annotations[labels.Undecodable] != "" && isOfAll(&object) && !object.Spec.Default
}

func declared(base effective.Spec, object v1alpha1.NVIDIADriver) operand.NVIDIADriver {
	pool, problems := Pool(object)
	driver := operand.NVIDIADriver{
		Name: object.Name, Pool: pool.Name, Default: object.Spec.Default, NodeSelector: object.Spec.NodeSelector,
		Spec: base.ForNodePool(pool), Driver: *pool.Driver, Refused: operand.Accept(),
	}
	for _, problem := range problems {
		if problem.Refused {
			driver.Refused = operand.Refuse(problem.Reason, fmt.Sprintf("%s: %s", problem.Field, problem.Message))
			break
		}
	}
	return driver
}

// Notes returns a sentence for each field of the object that has no effect.
func Notes(object v1alpha1.NVIDIADriver) []string {
	var notes []string
	_, problems := Pool(object)
	for _, problem := range problems {
		if !problem.Refused {
			notes = append(notes, problem.Field+" "+problem.Message)
		}
	}
	return notes
}
