package fieldnotes

import (
	"regexp"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
)

// withoutDriver is the advice about modules that are loaded beside the driver of the operator.
const withoutDriver = "has no effect without spec.driver.enabled: the hosts must load the module"

// beside are the fields that need another one, which is not set.
var beside = []field{
	{"spec.gds.enabled", func(s v1.ClusterPolicySpec) bool {
		return deref(deref(s.GDS).Enabled) && !*effective.Of(s).Driver.Enabled
	}, withoutDriver},
	{"spec.gdrcopy.enabled", func(s v1.ClusterPolicySpec) bool {
		return deref(deref(s.GDRCopy).Enabled) && !*effective.Of(s).Driver.Enabled
	}, withoutDriver},
	{"spec.driver.rdma.useHostMofed", func(s v1.ClusterPolicySpec) bool {
		rdma := effective.Of(s).Driver.RDMA
		return *rdma.UseHostMOFED && !*rdma.Enabled
	}, "has no effect without spec.driver.rdma.enabled: set it to true, or remove this field"},
	{"spec.driver.upgradePolicy.drain.podSelector", func(s v1.ClusterPolicySpec) bool {
		drain := deref(deref(deref(s.Driver).UpgradePolicy).Drain)
		return drain.PodSelector != "" && !deref(drain.Enable)
	}, "has no effect without drain.enable: set it to true, or remove this field"},
	{"spec.driver.upgradePolicy.waitForCompletion.timeoutSeconds", func(s v1.ClusterPolicySpec) bool {
		wait := deref(deref(deref(s.Driver).UpgradePolicy).WaitForCompletion)
		return deref(wait.TimeoutSeconds) > 0 && wait.PodSelector == ""
	}, "has no effect without podSelector, which selects the pods to wait for: set it"},
	{"spec.driver.version", isBranchAlone,
		"is a branch, by which NVIDIA publishes precompiled drivers only: set a whole version, or usePrecompiled"},
}

// branchAlone is the version of a precompiled driver.
var branchAlone = regexp.MustCompile(`^[0-9]{3}$`)

// isBranchAlone reports whether NVIDIA's registry has no driver with this tag, as it is not precompiled.
func isBranchAlone(s v1.ClusterPolicySpec) bool {
	driver := effective.Of(s).Driver
	isNVIDIAs := driver.Repository == "" && !driver.IsFullReference() || strings.HasPrefix(driver.Repository, "nvcr.io/")
	return *driver.Enabled && !*driver.UsePrecompiled && !*driver.UseNvidiaDriverCRD && isNVIDIAs &&
		branchAlone.MatchString(driver.Version)
}
