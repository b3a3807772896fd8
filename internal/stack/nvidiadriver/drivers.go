package nvidiadriver

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// DefaultName is the name of the object that is made of spec.driver. No node pool can have it.
const DefaultName = "cluster.default"

// gpuNodes selects all GPU nodes: the node pool of an object without a nodeSelector.
var gpuNodes = v1.NodePoolSelector{labels.GPUPresent: labels.True}

// Drivers returns the objects that describe the drivers of a policy, in the order of its node pools; none if its
// driver is disabled. The last one is the default: it has spec.driver, or what the first node pool of all GPU nodes
// has. Fields that are only in the policy, such as containerResources, are lost. Objects must not select the same
// node, so the selectors of the node pools must not overlap.
func Drivers(policy v1.ClusterPolicySpec) []v1alpha1.NVIDIADriver {
	spec := effective.Of(policy)
	if !*spec.Driver.Enabled {
		return nil
	}
	var drivers []v1alpha1.NVIDIADriver
	for _, pool := range spec.NodePools {
		if maps.Equal(pool.NodeSelector, gpuNodes) {
			return append(drivers, defaultOf(pool.Name, driverSpec(spec.ForNodePool(pool), pool.Driver)))
		}
		if pool.Driver == nil {
			continue
		}
		driver := object(pool.Name, driverSpec(spec.ForNodePool(pool), pool.Driver))
		driver.Spec.NodeSelector = pool.NodeSelector
		drivers = append(drivers, driver)
	}
	rest := defaultOf(DefaultName, driverSpec(spec, nil))
	selector := spec.Driver.NodeSelector
	if len(selector) == 0 {
		selector = spec.DaemonSets.NodeSelector
	}
	if len(selector) > 0 {
		rest.Spec.Default, rest.Spec.NodeSelector = false, v1.NodePoolSelector(selector)
	}
	return append(drivers, rest)
}

func object(name string, spec v1alpha1.NVIDIADriverSpec) v1alpha1.NVIDIADriver {
	driver := v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	driver.SetGroupVersionKind(v1alpha1.NVIDIADriverKind)
	return driver
}

func defaultOf(name string, spec v1alpha1.NVIDIADriverSpec) v1alpha1.NVIDIADriver {
	driver := object(name, spec)
	driver.Spec.Default = true
	return driver
}

// driverSpec returns the driver of a spec without the fields that have the default of NVIDIADriver.
func driverSpec(spec effective.Spec, pool *v1.NodePoolDriverSpec) v1alpha1.NVIDIADriverSpec {
	own, usual := spec.Driver, effective.Of(v1.ClusterPolicySpec{})
	driver := v1alpha1.NVIDIADriverSpec{
		UsePrecompiled:   other(own.UsePrecompiled, usual.Driver.UsePrecompiled),
		KernelModuleType: other(own.KernelModuleType, usual.Driver.KernelModuleType),
		StartupProbe:     other(own.StartupProbe, usual.Driver.StartupProbe),
		LivenessProbe:    other(own.LivenessProbe, usual.Driver.LivenessProbe),
		ReadinessProbe:   other(own.ReadinessProbe, usual.Driver.ReadinessProbe),
		RDMA:             other(own.RDMA, usual.Driver.RDMA),
		GDS:              other(spec.GDS, usual.GDS),
		GDRCopy:          other(spec.GDRCopy, usual.GDRCopy),
		ImageSpec:        own.ImageSpec,
		ContainerSpec:    own.ContainerSpec,
		Manager:          other(own.Manager, usual.Driver.Manager),
		SecretEnv:        own.SecretEnv,
	}
	driver.HostNetwork = other(own.HostNetwork, usual.Driver.HostNetwork)
	driver.ImagePullPolicy = other(own.ImagePullPolicy, usual.Driver.ImagePullPolicy)
	upgrades := *usual.Driver.UpgradePolicy
	upgrades.AutoUpgrade = new(true)
	driver.UpgradePolicy = upgradesBeyond(*own.UpgradePolicy, upgrades)
	addNames(&driver, own)
	addPods(&driver, spec, pool)
	return driver
}

// other returns a value that differs from the default.
func other[T any](value, byDefault T) T {
	if reflect.DeepEqual(value, byDefault) {
		var none T
		return none
	}
	return value
}

// upgradesBeyond returns the fields of an upgrade policy that differ from the defaults; nil if there are none.
func upgradesBeyond(own, usual v1.DriverUpgradePolicySpec) *v1.DriverUpgradePolicySpec {
	fields, defaults := tree(own), tree(usual)
	dropEqual(fields, defaults)
	if len(fields) == 0 {
		return nil
	}
	beyond := &v1.DriverUpgradePolicySpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, beyond); err != nil {
		return &own // They come from such a policy, so that this does not happen.
	}
	return beyond
}

// dropEqual removes from fields those that others have with the same value, and then empty blocks.
func dropEqual(fields, others map[string]any) {
	for key, value := range fields {
		block, isBlock := value.(map[string]any)
		other, isOther := others[key].(map[string]any)
		if isBlock && isOther {
			dropEqual(block, other)
		}
		if reflect.DeepEqual(value, others[key]) || isBlock && len(block) == 0 {
			delete(fields, key)
		}
	}
}

// addNames adds the names of ConfigMaps and Secrets.
func addNames(driver *v1alpha1.NVIDIADriverSpec, own *v1.DriverSpec) {
	driver.RepoConfig = configMap(own.RepoConfig.ConfigMapName)
	driver.CertConfig = configMap(own.CertConfig.Name)
	driver.VirtualTopologyConfig = configMap(own.VirtualTopology.Config)
	driver.KernelModuleConfig = configMap(own.KernelModuleConfig.Name)
	if licence := own.LicensingConfig; *licence != (v1.DriverLicensingConfigSpec{}) {
		driver.LicensingConfig = &v1alpha1.LicensingConfigSpec{
			SecretName: licence.SecretName, Name: licence.ConfigMapName, NLSEnabled: licence.NLSEnabled,
		}
	}
}

func configMap(name v1.ObjectName) *v1alpha1.ConfigMapSpec {
	if name == "" {
		return nil
	}
	return &v1alpha1.ConfigMapSpec{Name: name}
}

// addPods adds the metadata and the placement of the pods, which have those of all DaemonSets.
func addPods(driver *v1alpha1.NVIDIADriverSpec, spec effective.Spec, pool *v1.NodePoolDriverSpec) {
	all, own := spec.DaemonSets, spec.Driver
	driver.Labels = merged(all.Labels, own.Labels)
	driver.Annotations = merged(all.Annotations, own.Annotations)
	driver.PriorityClassName = own.PriorityClassName
	if usual := effective.Of(v1.ClusterPolicySpec{}).DaemonSets; driver.PriorityClassName == "" {
		driver.PriorityClassName = other(all.PriorityClassName, usual.PriorityClassName)
	}
	driver.Tolerations = withoutGPU(own.Tolerations)
	if len(own.Tolerations) == 0 {
		driver.Tolerations = withoutGPU(all.Tolerations)
	}
	driver.PodSecurityContext = other(all.PodSecurityContext, new(corev1.PodSecurityContext))
	if pool != nil && pool.PodSecurityContext != nil {
		driver.PodSecurityContext = pool.PodSecurityContext
	}
}

func merged[M ~map[string]V, V any](all, own M) M {
	if len(all)+len(own) == 0 {
		return nil
	}
	both := M{}
	maps.Copy(both, all)
	maps.Copy(both, own)
	return both
}

// withoutGPU drops, once, the toleration that every object has.
func withoutGPU(tolerations []corev1.Toleration) []corev1.Toleration {
	var others []corev1.Toleration
	for i, toleration := range tolerations {
		if i != slices.Index(tolerations, gpuToleration) {
			others = append(others, toleration)
		}
	}
	return others
}
