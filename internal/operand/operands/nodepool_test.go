package operands_test

import (
	"reflect"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Exactly the operands whose instances differ in a pool get DaemonSets of their own for it.
func TestVariesMatchesInstances(t *testing.T) {
	image := v1.ImageSpec{Version: "9"}
	pools := map[string]v1.NodePoolSpec{
		"driver.version":         {Driver: &v1.NodePoolDriverSpec{ImageSpec: image}},
		"driver.repository":      {Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Repository: "mirror.local"}}},
		"driver.image":           {Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Image: "other"}}},
		"driver.imagePullPolicy": {Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{ImagePullPolicy: "Always"}}},
		"driver.imagePullSecrets": {
			Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"a"}}},
		},
		"driver.kernelModuleType": {Driver: &v1.NodePoolDriverSpec{KernelModuleType: v1.KernelModuleOpen}},
		"driver.kernelModuleConfig": {
			Driver: &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "a"}},
		},
		"toolkit.version": {Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: image}},
		"toolkit.imagePullSecrets": {
			Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"a"}}},
		},
		"devicePlugin.config.name": {
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: "others"}},
		},
		"devicePlugin.config.default": {
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Default: "b"}},
		},
		"mig.strategy": {MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}},
		"migManager.config.default": {
			MIGManager: &v1.NodePoolMIGManagerSpec{Config: &v1.NodePoolMIGConfigSpec{Default: new("a")}},
		},
	}
	driverPools := []nodeinfo.Pool{{Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04"}}
	varying := map[string]bool{}
	for field, pool := range pools {
		t.Run(field, func(t *testing.T) {
			pool.Name, pool.NodeSelector = "a", v1.NodePoolSelector{"team": "a"}
			in := operand.Input{
				Spec: effective.Of(
					v1.ClusterPolicySpec{
						NodePools:    []v1.NodePoolSpec{pool},
						DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs", Default: "a"}},
					},
				),
				Layouts: nodeinfo.Layouts(
					[]nodeinfo.Facts{{HasGPU: true, Runtime: nodeinfo.RuntimeContainerd}},
				), OperatorImage: "example.com/gpu-operator:v1",
			}
			ofPool := in.ForNodePool(operand.NodePools(in.Spec)[0])
			for _, o := range catalogue(t) {
				common, err := o.Instances(in, driverPools)
				if err != nil {
					t.Fatal(err)
				}
				own, err := o.Instances(ofPool, driverPools)
				if err != nil {
					t.Fatal(err)
				}
				differs := !reflect.DeepEqual(describe(common), describe(own))
				if differs != o.VariesIn(pool) {
					t.Errorf("%s has other instances: %v, and DaemonSets of its own: %v", o.Name, differs, o.VariesIn(pool))
				}
				varying[string(o.Name)] = varying[string(o.Name)] || differs
			}
		})
	}
	if !varying["driver"] || !varying["container-toolkit"] || !varying["operator-validator"] || varying["dcgm-exporter"] {
		t.Errorf("pools vary %v", varying)
	}
}

func TestVaries(t *testing.T) {
	type varies struct{ Driver, Toolkit, Plugin, MIG bool }
	version := v1.ImageSpec{Version: "1"}
	tests := map[string]struct {
		pool v1.NodePoolSpec
		want varies
	}{
		"no fields": {},
		"empty blocks": {pool: v1.NodePoolSpec{
			Driver: &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{}}, Toolkit: &v1.NodePoolToolkitSpec{},
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{}}, MIG: &v1.MIGSpec{},
		}},
		"a driver version": {
			v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{ImageSpec: version}},
			varies{Driver: true},
		},
		"precompiled modules": {
			v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{UsePrecompiled: new(false)}},
			varies{Driver: true},
		},
		"the type of its modules": {
			v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{KernelModuleType: "open"}},
			varies{Driver: true},
		},
		"the parameters of its modules": {
			v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "a"}}},
			varies{Driver: true},
		},
		"a toolkit": {
			v1.NodePoolSpec{Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: version}},
			varies{Toolkit: true},
		},
		"a configuration": {
			v1.NodePoolSpec{
				DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Default: "a"}},
			}, varies{Plugin: true},
		},
		"a MIG strategy": {v1.NodePoolSpec{MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}}, varies{Plugin: true, MIG: true}},
		"a layout": {pool: v1.NodePoolSpec{MIGManager: &v1.NodePoolMIGManagerSpec{
			Config: &v1.NodePoolMIGConfigSpec{Default: new("all-balanced")},
		}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			own := func(name operand.Name) bool {
				o, _ := catalogue(t).Find(name)
				return o.VariesIn(test.pool)
			}
			got := varies{own("driver"), own("container-toolkit"), own("device-plugin"), own("operator-validator")}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// describe returns the compared fields of instances, without pointers.
func describe(instances []operand.Instance) []any {
	var all []any
	for _, i := range instances {
		all = append(all, i.Image, i.PullSecrets, i.Values, i.PluginConfig, i.ContainerFiles, i.Additions, i.Volumes)
	}
	return all
}
