package effective_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// A value in a node pool means what it means in the same field of the spec, and the spec itself is unchanged.
func TestForNodePool(t *testing.T) {
	base := v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{
			ImageSpec: v1.ImageSpec{
				Repository:       "mirror.local/nvidia",
				Version:          "580.95.05",
				ImagePullSecrets: []string{"base"},
			},
			PlacementSpec: v1.PlacementSpec{Labels: v1.Labels{"team": "base", "tier": "gpu"}},
			UpgradePolicy: &v1.DriverUpgradePolicySpec{
				MaxParallelUpgrades: new(int32(3)),
				Drain:               &v1.DrainSpec{Enable: new(true), PodSelector: "a=b"},
			},
		},
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs", Default: "whole"}},
		MIG:          &v1.MIGSpec{Strategy: v1.MIGStrategySingle},
	}
	driver := func(change func(*v1.DriverSpec)) func(*v1.ClusterPolicySpec) {
		return func(s *v1.ClusterPolicySpec) { change(s.Driver) }
	}
	config := func(name, key string) v1.NodePoolSpec {
		return v1.NodePoolSpec{
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: name, Default: key}},
		}
	}
	tests := map[string]struct {
		pool v1.NodePoolSpec
		want func(*v1.ClusterPolicySpec)
	}{
		"nothing": {want: func(*v1.ClusterPolicySpec) {}},
		"empty blocks": {
			pool: v1.NodePoolSpec{
				Driver:       &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{}},
				Toolkit:      &v1.NodePoolToolkitSpec{},
				DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{}},
				MIG:          &v1.MIGSpec{}, MIGManager: &v1.NodePoolMIGManagerSpec{Config: &v1.NodePoolMIGConfigSpec{}},
			},
			want: func(*v1.ClusterPolicySpec) {},
		},
		"a version": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}}},
			want: driver(func(d *v1.DriverSpec) { d.Version = "590.44.01" }),
		},
		"a full reference": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Image: "example.com/driver:1"}}},
			want: driver(func(d *v1.DriverSpec) { d.Repository, d.Image, d.Version = "", "example.com/driver:1", "" }),
		},
		"how images are pulled": {
			pool: v1.NodePoolSpec{Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{
				Repository: "a.b/c", Version: "v2", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"pool"},
			}}},
			want: func(s *v1.ClusterPolicySpec) {
				s.Toolkit = &v1.ToolkitSpec{ImageSpec: v1.ImageSpec{
					Repository: "a.b/c", Version: "v2", ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []string{"pool"},
				}}
			},
		},
		"labels and annotations": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{
				Labels: v1.Labels{"team": "pool"}, Annotations: v1.Annotations{"a": "b"},
			}},
			want: driver(func(d *v1.DriverSpec) {
				d.Labels, d.Annotations = v1.Labels{"team": "pool", "tier": "gpu"}, v1.Annotations{"a": "b"}
			}),
		},
		"modules": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{
				UsePrecompiled: new(true), KernelModuleType: v1.KernelModuleOpen,
				KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "modules"},
			}},
			want: driver(func(d *v1.DriverSpec) {
				d.UsePrecompiled, d.KernelModuleType = new(true), v1.KernelModuleOpen
				d.KernelModuleConfig = &v1.KernelModuleConfigSpec{Name: "modules"}
			}),
		},
		"upgrades": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{
				AutoUpgrade: new(true), Paused: new(true), MaxUnavailable: new(intstr.FromInt32(2)),
			}}},
			want: driver(func(d *v1.DriverSpec) {
				d.UpgradePolicy.AutoUpgrade, d.UpgradePolicy.Paused = new(true), new(true)
				d.UpgradePolicy.MaxUnavailable = new(intstr.FromInt32(2))
			}),
		},
		"upgrades, one after another though the spec has no limit": {
			pool: v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{
				UpgradePolicy: &v1.NodePoolUpgradePolicySpec{MaxParallelUpgrades: new(int32(1))},
			}},
			want: driver(func(d *v1.DriverSpec) { d.UpgradePolicy.MaxParallelUpgrades = new(int32(1)) }),
		},
		"another configuration of the same ConfigMap": {
			pool: config("", "shared"), want: func(s *v1.ClusterPolicySpec) { s.DevicePlugin.Config.Default = "shared" },
		},
		"another ConfigMap has keys of its own": {
			pool: config("others", ""),
			want: func(s *v1.ClusterPolicySpec) { s.DevicePlugin.Config = &v1.DevicePluginConfigSpec{Name: "others"} },
		},
		"a ConfigMap and a key": {
			pool: config("others", "a"), want: func(s *v1.ClusterPolicySpec) {
				s.DevicePlugin.Config = &v1.DevicePluginConfigSpec{Name: "others", Default: "a"}
			},
		},
		"sharing replaces the ConfigMap": {
			pool: v1.NodePoolSpec{Sharing: &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: 2}}},
			want: func(s *v1.ClusterPolicySpec) {
				s.DevicePlugin.Config = nil
				s.Sharing = &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{Replicas: 2}}
			},
		},
		"a MIG strategy": {
			pool: v1.NodePoolSpec{MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}},
			want: func(s *v1.ClusterPolicySpec) { s.MIG.Strategy = v1.MIGStrategyMixed },
		},
		"a layout": {
			pool: v1.NodePoolSpec{
				MIGManager: &v1.NodePoolMIGManagerSpec{Config: &v1.NodePoolMIGConfigSpec{Default: new("all-1g.10gb")}},
			},
			want: func(s *v1.ClusterPolicySpec) {
				s.MIGManager = &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: new("all-1g.10gb")}}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := *base.DeepCopy()
			test.want(&wanted)
			spec := effective.Of(base)
			before := *spec.DeepCopy()
			if diff := cmp.Diff(effective.Of(wanted), spec.ForNodePool(test.pool)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, spec.ClusterPolicySpec); diff != "" {
				t.Errorf("the spec itself has changed, -before +after:\n%s", diff)
			}
		})
	}
}

// fill sets all fields, to values that differ for each n. Quantities are left out.
func fill(field reflect.Value, n int64) {
	switch field.Kind() {
	case reflect.Pointer:
		if of := field.Type().Elem(); of.Kind() != reflect.Struct || hasFields(of) {
			field.Set(reflect.New(of))
			fill(field.Elem(), n)
		}
	case reflect.Struct:
		for i := range field.NumField() {
			if hasFields(field.Type()) {
				fill(field.Field(i), n)
			}
		}
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		fill(field.Index(0), n)
	case reflect.Map:
		if field.Type().Elem().Kind() == reflect.String {
			value := reflect.New(field.Type().Elem()).Elem()
			fill(value, n)
			field.Set(reflect.MakeMap(field.Type()))
			field.SetMapIndex(reflect.ValueOf("key").Convert(field.Type().Key()), value)
		}
	default:
		setValue(field, n)
	}
}

func setValue(field reflect.Value, n int64) {
	switch field.Kind() {
	case reflect.String:
		field.SetString(fmt.Sprint("value-", n))
	case reflect.Bool:
		field.SetBool(n == 1)
	case reflect.Int32, reflect.Int64:
		field.SetInt(n)
	}
}

func hasFields(of reflect.Type) bool {
	return slices.Contains([]string{reflect.TypeFor[v1.MIGSpec]().PkgPath(), "k8s.io/api/core/v1"}, of.PkgPath())
}

// Each field of a node pool's driver is that of the driver on its nodes.
func TestForNodePoolHasAllFields(t *testing.T) {
	var base v1.ClusterPolicySpec
	base.Driver, base.GDS, base.GDRCopy = &v1.DriverSpec{}, &v1.GDSSpec{}, &v1.GDRCopySpec{}
	for _, block := range []any{base.Driver, base.GDS, base.GDRCopy} {
		fill(reflect.ValueOf(block).Elem(), 2)
	}
	pool := v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{}}
	fill(reflect.ValueOf(pool.Driver).Elem(), 1)
	given := map[string]any{"driver": tree(t, pool.Driver)}
	driver, _ := given["driver"].(map[string]any)
	for _, module := range []string{"gds", "gdrcopy"} {
		given[module] = driver[module]
		delete(driver, module)
	}
	delete(driver, "podSecurityContext") // It is that of the DaemonSet alone.
	got := tree(t, effective.Of(base).ForNodePool(pool).ClusterPolicySpec)
	if diff := cmp.Diff(specgen.Merge(got, given), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
