package nvidiadriver

import (
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Problem is a field of an NVIDIADriver that a node pool cannot express.
type Problem struct {
	// Field is its path, such as spec.nodeAffinity.
	Field string
	// Reason is one of the reasons of package v1.
	Reason string
	// Message says what to change.
	Message string
	// Refused: the driver must not be installed. If false, only this field has no effect.
	Refused bool
}

// gpuToleration is the toleration that the pods of every object have.
var gpuToleration = corev1.Toleration{
	Key: labels.TaintGPU, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
}

// defaultImage is the image that NVIDIA's schema writes into objects without one.
const defaultImage = "nvcr.io/nvidia/driver"

// Pool returns the driver and its nodes as a node pool, see PoolName. What the object leaves out has the
// defaults of NVIDIADriver, provided that spec.driver, spec.gds, spec.gdrcopy and spec.daemonsets of the policy below
// it are empty. An object without a nodeSelector, such as the default one, selects all GPU nodes, so it must be last.
func Pool(driver v1alpha1.NVIDIADriver) (v1.NodePoolSpec, []Problem) {
	spec := driver.Spec.DeepCopy()
	selector := spec.NodeSelector
	if len(selector) == 0 {
		selector = gpuNodes
	}
	pool := &v1.NodePoolDriverSpec{
		UsePrecompiled: spec.UsePrecompiled, KernelModuleType: spec.KernelModuleType,
		StartupProbe: spec.StartupProbe, LivenessProbe: spec.LivenessProbe, ReadinessProbe: spec.ReadinessProbe,
		RDMA: spec.RDMA, ImageSpec: spec.ImageSpec,
		GDS: (*v1.NodePoolModuleSpec)(spec.GDS), GDRCopy: (*v1.NodePoolModuleSpec)(spec.GDRCopy),
		Resources: spec.Resources, Args: spec.Args, Env: spec.Env, HostNetwork: spec.HostNetwork,
		Labels: spec.Labels, Annotations: spec.Annotations, PriorityClassName: spec.PriorityClassName,
		PodSecurityContext: spec.PodSecurityContext, Manager: spec.Manager, SecretEnv: spec.SecretEnv,
		UpgradePolicy: upgradePolicy(spec.UpgradePolicy),
		Tolerations:   append([]corev1.Toleration{gpuToleration}, spec.Tolerations...),
	}
	if pool.Repository == "" && pool.Image == defaultImage {
		pool.Image = ""
	}
	addObjects(pool, spec)
	addLicence(pool, spec.LicensingConfig)
	return v1.NodePoolSpec{Name: PoolName(driver.Name), NodeSelector: selector, Driver: pool},
		append(undecodable(&driver), problems(spec)...)
}

// addObjects adds the names of ConfigMaps and Secrets, whose keys differ from those of a ClusterPolicy.
func addObjects(pool *v1.NodePoolDriverSpec, spec *v1alpha1.NVIDIADriverSpec) {
	if spec.RepoConfig != nil {
		pool.RepoConfig = &v1.DriverRepoConfigSpec{ConfigMapName: spec.RepoConfig.Name}
	}
	if spec.CertConfig != nil {
		pool.CertConfig = &v1.DriverCertConfigSpec{Name: spec.CertConfig.Name}
	}
	if spec.VirtualTopologyConfig != nil {
		pool.VirtualTopology = &v1.VirtualTopologyConfigSpec{Config: spec.VirtualTopologyConfig.Name}
	}
	if spec.KernelModuleConfig != nil {
		pool.KernelModuleConfig = &v1.KernelModuleConfigSpec{Name: spec.KernelModuleConfig.Name}
	}
}

// addLicence has the default of NVIDIADriver: the token is mounted.
func addLicence(pool *v1.NodePoolDriverSpec, licence *v1alpha1.LicensingConfigSpec) {
	if licence == nil {
		return
	}
	pool.LicensingConfig = &v1.DriverLicensingConfigSpec{
		SecretName: licence.SecretName, ConfigMapName: licence.Name, NLSEnabled: licence.NLSEnabled,
	}
	if licence.NLSEnabled == nil {
		pool.LicensingConfig.NLSEnabled = new(true)
	}
}

// upgradePolicy has the default of NVIDIADriver: drivers are upgraded automatically.
func upgradePolicy(spec *v1.DriverUpgradePolicySpec) *v1.NodePoolUpgradePolicySpec {
	pool := v1.NodePoolUpgradePolicySpec{}
	if spec != nil {
		pool = v1.NodePoolUpgradePolicySpec(*spec)
	}
	if pool.AutoUpgrade == nil {
		pool.AutoUpgrade = new(true)
	}
	return &pool
}

// undecodable returns the problem of an object that could not be decoded completely; nil if it could.
func undecodable(driver *v1alpha1.NVIDIADriver) []Problem {
	cause := driver.Annotations[labels.Undecodable]
	if cause == "" {
		return nil
	}
	return []Problem{{Field: "spec", Reason: v1.ReasonUndecodable, Message: cause, Refused: true}}
}

func problems(spec *v1alpha1.NVIDIADriverSpec) (found []Problem) {
	if spec.DriverType == v1alpha1.DriverTypeVGPUHostManager {
		found = append(found, Problem{
			Field: "spec.driverType", Reason: v1.ReasonNotSupportedYet, Refused: true,
			Message: "vgpu-host-manager is not supported yet: remove the object, or set gpu or vgpu in another one",
		})
	}
	if spec.NodeAffinity != nil {
		found = append(found, Problem{
			Field: "spec.nodeAffinity", Reason: v1.ReasonNotSupportedYet,
			Message: "has no effect, as in NVIDIA's operator: use nodeSelector",
		})
	}
	if spec.UseOpenKernelModules != nil {
		found = append(found, Problem{
			Field: "spec.useOpenKernelModules", Reason: v1.ReasonInvalidSpec,
			Message: "is deprecated and has no effect: use kernelModuleType",
		})
	}
	for _, problem := range podrules.Check(spec, "spec") {
		found = append(found, Problem{
			Field: problem.Field + problem.Below, Reason: v1.ReasonInvalidSpec, Message: problem.Message, Refused: true,
		})
	}
	return found
}
