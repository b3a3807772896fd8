package fieldnotes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// doubtful are the fields that NVIDIA's operator accepts, and whose value has no effect or may not be what its author
// intended.
var doubtful = []field{
	{"spec.devicePlugin.config.default", func(s given) bool {
		config := deref(deref(s.DevicePlugin).Config)
		return config.Default != "" && config.Name == ""
	}, "has no effect, as it is a key of the ConfigMap in name: set name"},
	{"spec.sharing", func(s given) bool { return sharesNothing(s.Sharing) },
		"shares nothing: set replicas of timeSlicing or mps to 2 or more"},
	{"spec.nodePools[].sharing", func(s given) bool {
		return slices.ContainsFunc(s.NodePools, func(pool v1.NodePoolSpec) bool { return sharesNothing(pool.Sharing) })
	}, "has a block without replicas of 2 or more, which shares nothing: set them, or remove timeSlicing and mps"},
	{"spec.dcgmExporter.podLabelAllowlistRegex", func(s given) bool {
		exporter := deref(s.DCGMExporter)
		return len(exporter.PodLabelAllowlistRegex) > 0 && exporter.EnablePodLabels == nil
	}, "has no effect while enablePodLabels is unset: set it to true, or to false to keep the value"},
	{"spec.dcgmExporter.hpcJobMapping.directory", func(s given) bool {
		mapping := deref(deref(s.DCGMExporter).HPCJobMapping)
		return mapping.Directory != "" && mapping.Enabled == nil
	}, "has no effect while enabled is unset: set it to true, or to false to keep the value"},
	forVMs("spec.sandboxDevicePlugin", func(s given) *bool { return deref(s.SandboxDevicePlugin).Enabled }),
	forVMs("spec.vgpuDeviceManager", func(s given) *bool { return deref(s.VGPUDeviceManager).Enabled }),
	forVMs("spec.vfioManager", func(s given) *bool { return deref(s.VFIOManager).Enabled }),
	forVMs("spec.kataSandboxDevicePlugin", func(s given) *bool {
		return deref(s.KataSandboxDevicePlugin).Enabled
	}),
	{"spec.vgpuDeviceManager.config.name", func(s given) bool {
		return deref(deref(s.VGPUDeviceManager).Config).Name != ""
	}, "has no effect: virtual machines are not supported yet"},
	{"spec.sandboxWorkloads.defaultWorkload", func(s given) bool {
		sandbox := s.effective().SandboxWorkloads
		return !*sandbox.Enabled && sandbox.DefaultWorkload != v1.WorkloadContainer
	}, "has no effect without sandboxWorkloads.enabled: all nodes are served for containers"},
	{"spec.sandboxWorkloads.mode", func(s given) bool {
		return deref(s.SandboxWorkloads).Mode == v1.SandboxKata
	}, "has no effect: virtual machines are not supported yet"},
	{"spec.validator.vfioPCI", func(s given) bool {
		return len(deref(deref(s.Validator).VFIOPCI).Env) > 0
	}, noVMCheck},
	{"spec.validator.vgpuManager", func(s given) bool {
		return len(deref(deref(s.Validator).VGPUManager).Env) > 0
	}, noVMCheck},
	{"spec.validator.vgpuDevices", func(s given) bool {
		return len(deref(deref(s.Validator).VGPUDevices).Env) > 0
	}, noVMCheck},
	forVMs("spec.ccManager", func(s given) *bool { return deref(s.CCManager).Enabled }),
	{"spec.vgpuManager", func(s given) bool {
		return !deref(deref(s.SandboxWorkloads).Enabled) && deref(deref(s.VGPUManager).Enabled)
	}, withoutVMs},
	{"spec.health.actions", func(s given) bool {
		spec := s.effective()
		return !*spec.Health.Agent.Enabled && spec.ActsOnUnhealthyNodes()
	}, "have no effect without the health agent: set spec.health.agent.enabled"},
	{"spec.driver.kernelModuleType", hasGDSWithProprietaryModules,
		"nvidia-fs 2.17.5 and later (GPUDirect Storage) load with the open kernel modules only: set open or auto, or " +
			"remove spec.gds.enabled"},
	{"spec.driver.upgradePolicy.maxUnavailable", func(s given) bool {
		return allowsNoUpgrade(s.effective().Driver.UpgradePolicy)
	}, "is 0, so that no node can be upgraded: raise it, or set autoUpgrade to false"},
	{"spec.nodePools[].driver.upgradePolicy", func(s given) bool {
		spec := s.effective()
		return slices.ContainsFunc(spec.NodePools, func(nodePool v1.NodePoolSpec) bool {
			return deref(nodePool.Driver).UpgradePolicy != nil &&
				allowsNoUpgrade(spec.ForNodePool(nodePool).Driver.UpgradePolicy)
		})
	}, "maxUnavailable is 0, so that no node of the node pool can be upgraded: raise it, or set autoUpgrade to false"},
}

// noVMCheck is the advice about checks of nodes for virtual machines.
const noVMCheck = "has no effect: virtual machines are not supported yet, remove it"

// withoutVMs is the advice about operands that run on nodes for virtual machines only.
const withoutVMs = "has no effect without sandboxWorkloads.enabled: remove it"

// forVMs returns the note about an operand for virtual machines that is turned on where there are none.
func forVMs(name string, enabled func(given) *bool) field {
	return field{name, func(s given) bool {
		return !deref(deref(s.SandboxWorkloads).Enabled) && deref(enabled(s)) && !isOfNVIDIAsChart(s)
	}, withoutVMs}
}

// isOfNVIDIAsChart reports whether a spec turns on all that is for virtual machines, as NVIDIA's chart does in every
// policy: then no user has set the fields.
func isOfNVIDIAsChart(s given) bool {
	return deref(deref(s.SandboxDevicePlugin).Enabled) && deref(deref(s.VFIOManager).Enabled) &&
		deref(deref(s.VGPUDeviceManager).Enabled)
}

// sharesNothing reports whether a block is to share GPUs and does not say by how many pods.
func sharesNothing(sharing *v1.SharingSpec) bool {
	if sharing == nil {
		return false
	}
	sliced, mps := sharing.TimeSlicing, sharing.MPS
	return sliced != nil && !effective.Shares(sliced.Replicas) && !anyReplicas(sliced.ResourceReplicas) ||
		mps != nil && !effective.Shares(mps.Replicas)
}

func anyReplicas(resources []v1.ResourceReplicasSpec) bool {
	return slices.ContainsFunc(resources, func(r v1.ResourceReplicasSpec) bool { return effective.Shares(r.Replicas) })
}

// allowsNoUpgrade reports whether upgrades are automatic and maxUnavailable, 0 or negative, allows none.
func allowsNoUpgrade(policy *v1.DriverUpgradePolicySpec) bool {
	most, err := intstr.GetScaledValueFromIntOrPercent(policy.MaxUnavailable, 100, true)
	return *policy.AutoUpgrade && err == nil && most <= 0
}

// needsOpenModules matches the versions of nvidia-fs that load with the open kernel modules only.
var needsOpenModules = regexp.MustCompile(`^v?2[.](17[.]([5-9]|[1-9][0-9])|1[89]|[2-9][0-9])`)

// hasGDSWithProprietaryModules reports whether GPUDirect Storage is to be loaded beside proprietary modules, in any
// node pool.
func hasGDSWithProprietaryModules(s given) bool {
	spec := s.effective()
	return loadsGDSWithProprietaryModules(spec) ||
		slices.ContainsFunc(spec.NodePools, func(nodePool v1.NodePoolSpec) bool {
			return loadsGDSWithProprietaryModules(spec.ForNodePool(nodePool))
		})
}

// loadsGDSWithProprietaryModules is about one spec. The version in a full reference is unknown.
func loadsGDSWithProprietaryModules(spec effective.Spec) bool {
	gds := spec.GDS
	return *spec.Driver.Enabled && *gds.Enabled && !gds.IsFullReference() &&
		(gds.Version == "" || needsOpenModules.MatchString(gds.Version)) &&
		spec.Driver.KernelModuleType == v1.KernelModuleProprietary
}

// Doubtful returns a sentence for each value that has no effect, or that the operator does not take literally, in a
// fixed order.
func Doubtful(spec v1.ClusterPolicySpec) []string {
	given := newGiven(spec)
	found := notes(slices.Concat(doubtful, beside), given)
	if foreign := image.Foreign(deref(spec.Validator).ImageSpec); foreign != "" {
		found = append(found, "spec.validator: "+foreign)
	}
	effective.ForEachImage(&spec, func(block string, spec *v1.ImageSpec) {
		if !effective.IsPullPolicy(spec.ImagePullPolicy) {
			found = append(found, fmt.Sprintf("%s.imagePullPolicy: %q is unknown and means %s: set %s, %s or %s", block,
				spec.ImagePullPolicy, corev1.PullIfNotPresent, corev1.PullAlways, corev1.PullNever, corev1.PullIfNotPresent))
		}
	})
	found = append(found, tagsWithoutV(spec)...)
	effective.ForEachMisread(&spec, func(field, text, taken string) {
		found = append(found, misread(field, text, taken))
	})
	effective.ForEachEnv(&spec, func(list string, env *[]v1.EnvVar) {
		seen := map[v1.EnvName]int{}
		for _, variable := range *env {
			if seen[variable.Name]++; seen[variable.Name] == 2 {
				found = append(found, fmt.Sprintf("%s: %s occurs several times, and the last value is used: remove the others",
					list, variable.Name))
			}
		}
	})
	return append(found, lostVariables(given)...)
}

// misread returns the sentence for a text that is no number or percentage, or is too large. It counts as what is taken,
// or as the default if that is empty.
func misread(field, given, taken string) string {
	meaning := "the default applies"
	if taken != "" {
		meaning = "it counts as " + taken
	}
	return fmt.Sprintf("%s: %q is neither a number of at most 9 digits nor a percentage, and %s: set a number such as 2, "+
		"or a percentage such as 25%%", field, given, meaning)
}

// bareVersion is a version as NVIDIA does not write it in the tags of some images.
var bareVersion = regexp.MustCompile(`^[0-9]+[.][0-9]`)

// tagsWithoutV returns a sentence for each image of NVIDIA's registry whose tag does not exist, as it has no v.
func tagsWithoutV(spec v1.ClusterPolicySpec) []string {
	var found []string
	for _, block := range []struct {
		name string
		v1.ImageSpec
	}{
		{"spec.toolkit", deref(spec.Toolkit).ImageSpec}, {"spec.devicePlugin", deref(spec.DevicePlugin).ImageSpec},
		{"spec.gfd", deref(spec.GFD).ImageSpec}, {"spec.migManager", deref(spec.MIGManager).ImageSpec},
		{"spec.driver.manager", deref(deref(spec.Driver).Manager).ImageSpec},
	} {
		isNVIDIAs := block.Repository == "" && !block.IsFullReference() || strings.HasPrefix(block.Repository, "nvcr.io/")
		if isNVIDIAs && bareVersion.MatchString(block.Version) {
			found = append(found, fmt.Sprintf("%s.version: is %s, but NVIDIA's tags begin with v: set v%s", block.name,
				block.Version, block.Version))
		}
	}
	return found
}
