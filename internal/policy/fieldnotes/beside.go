package fieldnotes

import (
	"regexp"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// withoutDriver is the advice about modules that are loaded beside the driver of the operator.
const withoutDriver = "has no effect without spec.driver.enabled: the hosts must load the module"

// withoutMixed is the advice about replicas of MIG devices, which only one strategy advertises as such.
const withoutMixed = "names MIG devices, which nodes have as nvidia.com/gpu or not at all: set mig.strategy to mixed"

// sharesMIG reports whether a block names a resource of MIG devices.
func sharesMIG(sharing *v1.SharingSpec) bool {
	return slices.ContainsFunc(deref(deref(sharing).TimeSlicing).ResourceReplicas, func(r v1.ResourceReplicasSpec) bool {
		return strings.HasPrefix(r.Name, labels.ResourceMIGPrefix)
	})
}

// beside are the fields that need another one, which is not set.
var beside = []field{
	{"spec.gds.enabled", func(s given) bool {
		return deref(deref(s.GDS).Enabled) && !*s.effective().Driver.Enabled
	}, withoutDriver},
	{"spec.gdrcopy.enabled", func(s given) bool {
		return deref(deref(s.GDRCopy).Enabled) && !*s.effective().Driver.Enabled
	}, withoutDriver},
	{"spec.driver.rdma.enabled", func(s given) bool {
		driver := s.effective().Driver
		return *driver.RDMA.Enabled && !*driver.Enabled
	}, withoutDriver},
	{"spec.driver.rdma.useHostMofed", func(s given) bool {
		rdma := s.effective().Driver.RDMA
		return *rdma.UseHostMOFED && !*rdma.Enabled
	}, "has no effect without spec.driver.rdma.enabled: set it to true, or remove this field"},
	{"spec.driver.upgradePolicy.drain.podSelector", func(s given) bool {
		drain := deref(deref(deref(s.Driver).UpgradePolicy).Drain)
		return drain.PodSelector != "" && !deref(drain.Enable)
	}, "has no effect without drain.enable: set it to true, or remove this field"},
	{"spec.driver.upgradePolicy.waitForCompletion.timeoutSeconds", func(s given) bool {
		wait := deref(deref(deref(s.Driver).UpgradePolicy).WaitForCompletion)
		return deref(wait.TimeoutSeconds) > 0 && wait.PodSelector == ""
	}, "has no effect without podSelector, which selects the pods to wait for: set it"},
	{"spec.sharing.timeSlicing.resourceReplicas", func(s given) bool {
		spec := s.effective()
		return sharesMIG(s.Sharing) && spec.MIG.Strategy != v1.MIGStrategyMixed &&
			!slices.ContainsFunc(spec.NodePools, func(pool v1.NodePoolSpec) bool {
				return pool.Sharing == nil && spec.ForNodePool(pool).MIG.Strategy == v1.MIGStrategyMixed
			})
	}, withoutMixed},
	{"spec.nodePools[].sharing.timeSlicing.resourceReplicas", func(s given) bool {
		spec := s.effective()
		return slices.ContainsFunc(spec.NodePools, func(pool v1.NodePoolSpec) bool {
			return sharesMIG(pool.Sharing) && spec.ForNodePool(pool).MIG.Strategy != v1.MIGStrategyMixed
		})
	}, withoutMixed},
	{"spec.driver.version", isBranchAlone,
		"is a branch, by which NVIDIA publishes precompiled drivers only: set a whole version, or usePrecompiled"},
}

// branchAlone is the version of a precompiled driver.
var branchAlone = regexp.MustCompile(`^[0-9]{3}$`)

// isBranchAlone reports whether NVIDIA's registry has no driver with this tag, as it is not precompiled.
func isBranchAlone(s given) bool {
	driver := s.effective().Driver
	isNVIDIAs := driver.Repository == "" && !driver.IsFullReference() || strings.HasPrefix(driver.Repository, "nvcr.io/")
	return *driver.Enabled && !*driver.UsePrecompiled && !*driver.UseNvidiaDriverCRD && isNVIDIAs &&
		branchAlone.MatchString(driver.Version)
}
