package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

var precompiled, toolkit = nodeinfo.PoolCriteria{Kernel: true}, nodeinfo.PoolCriteria{CoreOS: true}

func TestPoolCriteriaFollowTheSpec(t *testing.T) {
	tests := map[string]struct {
		driver  *v1.DriverSpec
		toolkit *bool
		want    nodeinfo.PoolCriteria
	}{
		"no driver block":           {want: toolkit},
		"an empty block":            {driver: &v1.DriverSpec{}, want: toolkit},
		"built":                     {driver: &v1.DriverSpec{UsePrecompiled: new(false)}, toolkit: new(true), want: toolkit},
		"built without the toolkit": {toolkit: new(false)},
		"precompiled":               {driver: &v1.DriverSpec{UsePrecompiled: new(true)}, want: precompiled},
		"precompiled anyway": {
			driver:  &v1.DriverSpec{UsePrecompiled: new(true)},
			toolkit: new(true),
			want:    precompiled,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{Driver: test.driver, Operator: &v1.OperatorSpec{UseOCPDriverToolkit: test.toolkit}}
			if got := (operand.Input{Spec: effective.Of(spec)}).PoolCriteria(); got != test.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Another upgradePolicy alone needs no DaemonSet.
func TestVariesDriver(t *testing.T) {
	g := NewWithT(t)
	for name, test := range map[string]struct {
		driver *v1.NodePoolDriverSpec
		want   bool
	}{
		"none": {}, "empty": {driver: &v1.NodePoolDriverSpec{}},
		"an upgradePolicy": {driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{
			Drain: &v1.DrainSpec{PodSelector: "a=b"},
		}}},
		"an empty block":      {driver: &v1.NodePoolDriverSpec{RDMA: &v1.RDMASpec{}}},
		"a block":             {driver: &v1.NodePoolDriverSpec{RDMA: &v1.RDMASpec{Enabled: new(false)}}, want: true},
		"a field that is off": {driver: &v1.NodePoolDriverSpec{HostNetwork: new(false)}, want: true},
		"a text":              {driver: &v1.NodePoolDriverSpec{PriorityClassName: "a"}, want: true},
		"a list":              {driver: &v1.NodePoolDriverSpec{Args: []string{"a"}}, want: true},
		"an empty list":       {driver: &v1.NodePoolDriverSpec{Args: []string{}}},
	} {
		g.Expect(operand.VariesDriver(v1.NodePoolSpec{Driver: test.driver})).To(Equal(test.want), name)
		in := onePool(test.driver)
		pool := ""
		if test.want {
			pool = "a"
		}
		g.Expect(in.ForNodePool(operand.NodePools(in.Spec)[0]).PoolCriteria().NodePool).To(Equal(pool), name)
	}
}

// Fields are named as the one who sets them knows them.
func TestFieldOfANodePoolOrObject(t *testing.T) {
	g := NewWithT(t)
	in := onePool(&v1.NodePoolDriverSpec{
		ImageSpec: v1.ImageSpec{Version: "1"}, GDS: &v1.NodePoolModuleSpec{ImageSpec: v1.ImageSpec{Image: "a"}},
	})
	plain := onePool(nil)
	for path, of := range map[string]struct{ pool, object string }{
		"spec.driver.version":                  {"spec.nodePools[].driver.version", "spec.version"},
		"spec.driver.env":                      {"spec.driver.env", "spec.env"},
		"spec.gds.image":                       {"spec.nodePools[].driver.gds.image", "spec.gds.image"},
		"spec.gdrcopy.image":                   {"spec.gdrcopy.image", "spec.gdrcopy.image"},
		"spec.driver.none.of.them":             {"spec.driver.none.of.them", "spec.none.of.them"},
		"spec.driver.repoConfig.configMapName": {"spec.driver.repoConfig.configMapName", "spec.repoConfig.name"},
		"spec.driver.licensingConfig.configMapName": {
			"spec.driver.licensingConfig.configMapName", "spec.licensingConfig.name",
		},
		"spec.driver.virtualTopology.config": {
			"spec.driver.virtualTopology.config", "spec.virtualTopologyConfig.name",
		},
	} {
		g.Expect(in.Field(path)).To(Equal(path), "nodes of no node pool")
		g.Expect(plain.ForNodePool(operand.NodePools(plain.Spec)[0]).Field(path)).To(Equal(path), "nothing is overridden")
		pool := in.ForNodePool(operand.NodePools(in.Spec)[0])
		g.Expect(pool.Field(path)).To(Equal(of.pool))
		pool.OfNVIDIADriver = true
		g.Expect(pool.Field(path)).To(Equal(of.object))
	}
	pool := in.ForNodePool(operand.NodePools(in.Spec)[0])
	for block, of := range map[string]struct{ pool, object string }{
		"spec.driver":         {"spec.nodePools[].driver", "spec"},
		"spec.gds":            {"spec.nodePools[].driver.gds", "spec.gds"},
		"spec.gdrcopy":        {"spec.gdrcopy", "spec.gdrcopy"},
		"spec.driver.manager": {"spec.driver.manager", "spec.manager"},
	} {
		g.Expect(in.ImageField(block)).To(Equal(block))
		g.Expect(pool.ImageField(block)).To(Equal(of.pool))
		object := pool
		object.OfNVIDIADriver = true
		g.Expect(object.ImageField(block)).To(Equal(of.object))
	}
}
