package operands_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Operands are installed by default unless their field is false. The decision names the field.
func TestDecide(t *testing.T) {
	const installed = "installed"
	offByDefault := map[operand.Name]string{
		"dcgm": "DisabledBySpec: spec.dcgm.enabled is not true: " +
			"the DCGM exporter runs its own engine",
		"node-status-exporter": "DisabledBySpec: spec.nodeStatusExporter.enabled is not true",
	}
	all := func(change map[operand.Name]string) map[operand.Name]string {
		want := map[operand.Name]string{}
		for _, o := range tabled(t) {
			want[o.Name] = installed
		}
		maps.Copy(want, offByDefault)
		want["mps-control-daemon"] = "DisabledBySpec: neither spec.sharing.mps nor spec.devicePlugin.config.name is set: " +
			"no configuration shares GPUs by MPS"
		for name, text := range change {
			want[name] = text
		}
		return want
	}
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want map[operand.Name]string
	}{
		"an empty spec": {want: all(nil)},
		"empty blocks": {
			spec: v1.ClusterPolicySpec{
				Driver:       &v1.DriverSpec{},
				Toolkit:      &v1.ToolkitSpec{},
				DevicePlugin: &v1.DevicePluginSpec{},
				Validator:    &v1.ValidatorSpec{},
				CDI:          &v1.CDISpec{},
			},
			want: all(nil),
		},
		"true is the default": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(true)}},
			want: all(nil),
		},
		"false disables the driver": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{"driver": "DisabledBySpec: spec.driver.enabled is false"}),
		},
		"false disables the toolkit": {
			spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{"container-toolkit": "DisabledBySpec: spec.toolkit.enabled is false"}),
		},
		"false disables the device plugin": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{
				"device-plugin":      "DisabledBySpec: spec.devicePlugin.enabled is false",
				"mps-control-daemon": "DisabledBySpec: spec.devicePlugin.enabled is false",
			}),
		},
		"a configuration of the device plugin can share GPUs by MPS": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "configs"}}},
			want: all(map[operand.Name]string{"mps-control-daemon": installed}),
		},
		"false disables GPU Feature Discovery": {
			spec: v1.ClusterPolicySpec{GFD: &v1.GFDSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{"gpu-feature-discovery": "DisabledBySpec: spec.gfd.enabled is false"}),
		},
		"false disables the MIG manager": {
			spec: v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{"mig-manager": "DisabledBySpec: spec.migManager.enabled is false"}),
		},
		"false disables the DCGM exporter": {
			spec: v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{Enabled: new(false)}},
			want: all(map[operand.Name]string{"dcgm-exporter": "DisabledBySpec: spec.dcgmExporter.enabled is false"}),
		},
		"true enables what is disabled by default": {
			spec: v1.ClusterPolicySpec{
				DCGM: &v1.DCGMSpec{Enabled: new(true)}, NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true)},
			},
			want: all(map[operand.Name]string{"dcgm": installed, "node-status-exporter": installed}),
		},
		"empty blocks enable nothing": {
			spec: v1.ClusterPolicySpec{
				DCGM: &v1.DCGMSpec{}, DCGMExporter: &v1.DCGMExporterSpec{}, NodeStatusExporter: &v1.NodeStatusExporterSpec{},
				Operator: &v1.OperatorSpec{Metrics: &v1.OperatorMetricsSpec{}},
			},
			want: all(nil),
		},
		"the NRI plugin disables only the RuntimeClasses": {
			spec: v1.ClusterPolicySpec{CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}},
			want: all(map[operand.Name]string{
				"runtime-classes": "DisabledBySpec: spec.cdi.nriPluginEnabled is true: pods get GPUs without a RuntimeClass",
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[operand.Name]string{}
			for _, o := range tabled(t) {
				decision := o.Decide(operand.Input{Spec: effective.Of(test.spec)})
				got[o.Name] = installed
				if decision.Choice != operand.Install {
					got[o.Name] = decision.Reason + ": " + decision.Message
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
