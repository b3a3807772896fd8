package driver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestVariablesThatContradictAFieldAreRefused(t *testing.T) {
	with := func(name, value string) []v1.EnvVar {
		return []v1.EnvVar{{Name: "A", Value: "1"}, {Name: name, Value: value}}
	}
	inDriver := func(name, value string, change func(*v1.ClusterPolicySpec)) v1.ClusterPolicySpec {
		spec := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{Env: with(name, value)}}}
		change(&spec)
		return spec
	}
	as := func(*v1.ClusterPolicySpec) {}
	const remedy = ": remove the variable, and set the field instead"
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want string
	}{
		"GPUDirect Storage": {
			inDriver("GDS_ENABLED", "true", as),
			`spec.driver.env: GDS_ENABLED is "true", which contradicts spec.gds.enabled` + remedy,
		},
		"GPUDirect Storage is on": {spec: inDriver("GDS_ENABLED", "true", func(s *v1.ClusterPolicySpec) {
			s.GDS = &v1.GDSSpec{Enabled: new(true)}
		})},
		"GPUDirect Storage is on, the variable is false": {inDriver("GDS_ENABLED", "false", func(s *v1.ClusterPolicySpec) {
			s.GDS = &v1.GDSSpec{Enabled: new(true)}
		}), `spec.driver.env: GDS_ENABLED is "false", which contradicts spec.gds.enabled` + remedy},
		"off, with a variable that is false": {spec: inDriver("GDRCOPY_ENABLED", "false", as)},
		"off, with an empty variable":        {spec: inDriver("GDRCOPY_ENABLED", "", as)},
		"GDRCopy": {
			inDriver("GDRCOPY_ENABLED", "1", as),
			`spec.driver.env: GDRCOPY_ENABLED is "1", which contradicts spec.gdrcopy.enabled` + remedy,
		},
		"not a boolean": {
			inDriver("GPU_DIRECT_RDMA_ENABLED", "yes", as),
			`spec.driver.env: GPU_DIRECT_RDMA_ENABLED is "yes", which contradicts spec.driver.rdma.enabled` + remedy,
		},
		"the module type, whose field is unset": {spec: inDriver("KERNEL_MODULE_TYPE", "open", as)},
		"another module type": {
			inDriver("KERNEL_MODULE_TYPE", "open", func(s *v1.ClusterPolicySpec) { s.Driver.KernelModuleType = "auto" }),
			`spec.driver.env: KERNEL_MODULE_TYPE is "open", which contradicts spec.driver.kernelModuleType` + remedy,
		},
		"an unknown module type": {
			inDriver("KERNEL_MODULE_TYPE", "closed", as),
			`spec.driver.env: KERNEL_MODULE_TYPE is "closed", which contradicts spec.driver.kernelModuleType` + remedy,
		},
		"RDMA, whose field is unset": {spec: inDriver("GPU_DIRECT_RDMA_ENABLED", "true", as)},
		"RDMA, which is off": {
			inDriver("GPU_DIRECT_RDMA_ENABLED", "true", func(s *v1.ClusterPolicySpec) {
				s.Driver.RDMA = &v1.RDMASpec{Enabled: new(false)}
			}),
			`spec.driver.env: GPU_DIRECT_RDMA_ENABLED is "true", which contradicts spec.driver.rdma.enabled` + remedy,
		},
		"another value before it": {spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{
			Env: []v1.EnvVar{{Name: "GDS_ENABLED", Value: "true"}, {Name: "GDS_ENABLED", Value: "false"}},
		}}}},
		"the same module type": {
			spec: inDriver("KERNEL_MODULE_TYPE", "open", func(s *v1.ClusterPolicySpec) { s.Driver.KernelModuleType = "open" }),
		},
		"open modules, whose field is unset": {spec: inDriver("OPEN_KERNEL_MODULES_ENABLED", "true", as)},
		"open modules": {
			inDriver("OPEN_KERNEL_MODULES_ENABLED", "true", func(s *v1.ClusterPolicySpec) {
				s.Driver.KernelModuleType = "proprietary"
			}),
			`spec.driver.env: OPEN_KERNEL_MODULES_ENABLED is "true", which contradicts spec.driver.kernelModuleType` + remedy,
		},
		"MOFED of the host without RDMA, where nothing reads it": {spec: inDriver("USE_HOST_MOFED", "true", as)},
		"MOFED of the host, which is off": {inDriver("USE_HOST_MOFED", "true", func(s *v1.ClusterPolicySpec) {
			s.Driver.RDMA = &v1.RDMASpec{Enabled: new(true), UseHostMOFED: new(false)}
		}), `spec.driver.env: USE_HOST_MOFED is "true", which contradicts spec.driver.rdma.useHostMofed` + remedy},
		"a reserved variable": {
			inDriver("POD_UID", "x", as),
			"spec.driver.env: POD_UID is reserved for the operator: remove it",
		},
		"any other variable": {spec: inDriver("HTTPS_PROXY", "http://proxy", as)},
		"in the driver manager": {
			v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Manager: &v1.DriverManagerSpec{Env: with("DRIVER_CONFIG_DIGEST", "x")}}},
			"spec.driver.manager.env: DRIVER_CONFIG_DIGEST is reserved for the operator: remove it",
		},
		"in nvidia-fs": {
			v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Env: with("POD_UID", "x")}},
			"spec.gds.env: POD_UID is reserved for the operator: remove it",
		},
		"in gdrcopy": {
			v1.ClusterPolicySpec{GDRCopy: &v1.GDRCopySpec{Env: with("POD_UID", "x")}},
			"spec.gdrcopy.env: POD_UID is reserved for the operator: remove it",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { decides(t, test.spec, test.want) })
	}
}

func TestWhatCannotBePrecompiledIsRefused(t *testing.T) {
	precompiled := func(image v1.ImageSpec, change func(*v1.ClusterPolicySpec)) v1.ClusterPolicySpec {
		spec := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: image}}
		change(&spec)
		return spec
	}
	as := func(*v1.ClusterPolicySpec) {}
	const field = "spec.driver.usePrecompiled: "
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want string
	}{
		"a branch": {spec: precompiled(v1.ImageSpec{Version: "595"}, as)},
		"no version": {
			precompiled(v1.ImageSpec{}, as),
			field + "set spec.driver.version to a driver branch, such as 595",
		},
		"a whole version": {
			precompiled(v1.ImageSpec{Version: "595.91.07"}, as),
			field + `version "595.91.07" is not a driver branch: set one, such as 595`,
		},
		"a digest": {
			precompiled(v1.ImageSpec{Version: "sha256:1"}, as),
			field + `version "sha256:1" is not a driver branch: set one, such as 595`,
		},
		"a full reference": {spec: precompiled(v1.ImageSpec{Image: "example.com/driver:595"}, as)},
		"a full reference by digest": {
			precompiled(v1.ImageSpec{Image: "example.com/driver@sha256:1"}, as),
			field + `image "example.com/driver@sha256:1" has a digest, but each kernel needs its own image: remove the digest`,
		},
		"a full reference and GPUDirect Storage": {
			precompiled(v1.ImageSpec{Image: "example.com/driver:595"}, func(s *v1.ClusterPolicySpec) {
				s.GDS = &v1.GDSSpec{Enabled: new(true)}
			}),
			field + "a precompiled driver cannot have GPUDirect Storage: remove this field or spec.gds.enabled",
		},
		"GPUDirect Storage": {
			precompiled(v1.ImageSpec{Version: "595"}, func(s *v1.ClusterPolicySpec) { s.GDS = &v1.GDSSpec{Enabled: new(true)} }),
			field + "a precompiled driver cannot have GPUDirect Storage: remove this field or spec.gds.enabled",
		},
		"GDRCopy": {
			precompiled(
				v1.ImageSpec{Version: "595"},
				func(s *v1.ClusterPolicySpec) { s.GDRCopy = &v1.GDRCopySpec{Enabled: new(true)} },
			),
			field + "a precompiled driver cannot have GDRCopy: remove this field or spec.gdrcopy.enabled",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { decides(t, test.spec, test.want) })
	}
}

// decides compares the decision about a spec with the message of a refusal; empty if it is installed.
func decides(t *testing.T, spec v1.ClusterPolicySpec, want string) {
	t.Helper()
	decision := operand.Decision{}
	if want != "" {
		decision = operand.Refuse(v1.ReasonInvalidSpec, want)
	}
	if diff := cmp.Diff(decision, driver.Operand().Decide(operand.Input{Spec: effective.Of(spec)})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPoolsThatAreRefused(t *testing.T) {
	repositories := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "a"}}}
	certificates := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{CertConfig: &v1.DriverCertConfigSpec{Name: "a"}}}
	precompiled := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: new(true)}}
	const unknown = "spec.driver.repoConfig and spec.driver.certConfig are not supported on amzn2023: " +
		"remove them, and use a driver image that contains these files"
	const build = ": the driver for this release of Red Hat CoreOS is built with that image. Add the tag; or, if the " +
		"hosts have a Red Hat subscription, set spec.operator.use_ocp_driver_toolkit to false; " +
		"or set spec.driver.usePrecompiled"
	const switched = "the nodes still run a driver installed for another value of spec.operator.use_ocp_driver_toolkit, " +
		"until it is upgraded"
	toolkitOff := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(false)}}
	images := map[string]string{"418.94.2-0": "example.com/dtk", "418.94.3-0": ""}
	tests := map[string]struct {
		spec   v1.ClusterPolicySpec
		pool   nodeinfo.Pool
		want   string
		images map[string]string
	}{
		"repositories of a supported system": {spec: repositories, pool: nodeinfo.Pool{OSTag: "sl-micro6.0"}},
		"repositories of an unknown system":  {spec: repositories, pool: nodeinfo.Pool{OSTag: "amzn2023"}, want: unknown},
		"certificates of an unknown system":  {spec: certificates, pool: nodeinfo.Pool{OSTag: "amzn2023"}, want: unknown},
		"an unknown system that needs none":  {pool: nodeinfo.Pool{OSTag: "amzn2023"}},
		"CoreOS":                             {pool: nodeinfo.Pool{OSTag: "rhcos4.18", CoreOS: "418.94.2-0"}, images: images},
		"CoreOS with the ID of RHEL":         {pool: nodeinfo.Pool{OSTag: "rhel9", CoreOS: "418.94.2-0"}, images: images},
		"no tag": {
			pool: nodeinfo.Pool{OSTag: "rhcos4.18", CoreOS: "418.94.1-0"}, images: images,
			want: "ImageStream openshift/driver-toolkit has no tag 418.94.1-0 with an image" + build,
		},
		"a tag without an image": {
			pool: nodeinfo.Pool{OSTag: "rhcos4.18", CoreOS: "418.94.3-0"}, images: images,
			want: "ImageStream openshift/driver-toolkit has no tag 418.94.3-0 with an image" + build,
		},
		"no stream": {
			pool: nodeinfo.Pool{OSTag: "rhel9", CoreOS: "9.6.20260504-0"},
			want: "ImageStream openshift/driver-toolkit, which must have tag 9.6.20260504-0, is missing or cannot be read" +
				build,
		},
		"CoreOS without the toolkit":            {spec: toolkitOff, pool: nodeinfo.Pool{OSTag: "rhcos4.16"}},
		"a pool from before the driver toolkit": {pool: nodeinfo.Pool{OSTag: "rhcos4.16"}, want: switched, images: images},
		"a pool with the driver toolkit, now off": {
			spec:   toolkitOff,
			pool:   nodeinfo.Pool{OSTag: "rhcos4.18", CoreOS: "418.94.2-0"},
			want:   switched,
			images: images,
		},
		"RHEL beside CoreOS":  {pool: nodeinfo.Pool{OSTag: "rhel9"}},
		"CoreOS, precompiled": {spec: precompiled, pool: nodeinfo.Pool{OSTag: "rhcos4.16", Kernel: "5.14"}},
		"a CoreOS pool built before usePrecompiled": {
			spec: precompiled,
			pool: nodeinfo.Pool{OSTag: "rhcos4.18", CoreOS: "418.94.2-0"},
			want: "the nodes still run a driver installed for another value of spec.driver.usePrecompiled, until it is upgraded",
		},
		"a pool built before usePrecompiled": {
			spec: precompiled,
			pool: nodeinfo.Pool{OSTag: "rhel9"},
			want: "the nodes still run a driver installed for another value of spec.driver.usePrecompiled, until it is upgraded",
		},
		"a precompiled pool after usePrecompiled": {
			pool: nodeinfo.Pool{OSTag: "rhel9", Kernel: "5.14"},
			want: "the nodes still run a driver installed for another value of spec.driver.usePrecompiled, until it is upgraded",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), DriverToolkit: test.images}
			if got := driver.Operand().ServesPool(in, test.pool); got.Message != test.want {
				t.Errorf("got %q", got.Message)
			}
		})
	}
}
