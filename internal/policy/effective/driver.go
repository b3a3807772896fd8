package effective

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func driver(s *v1.DriverSpec) {
	option(&s.Enabled, true)             // NVIDIA
	option(&s.UseNvidiaDriverCRD, false) // NVIDIA
	option(&s.UsePrecompiled, false)     // NVIDIA
	variables(s)
	value(&s.KernelModuleType, v1.KernelModuleAuto) // NVIDIA
	startupProbe(block(&s.StartupProbe))
	block(&s.LivenessProbe)                // empty means no probe
	block(&s.ReadinessProbe)               // empty means no probe
	option(&block(&s.RDMA).Enabled, false) // NVIDIA
	option(&s.RDMA.UseHostMOFED, false)    // NVIDIA
	block(&s.LicensingConfig)              // nlsEnabled: what the Secret has decides
	block(&s.RepoConfig)
	block(&s.CertConfig)
	block(&s.VirtualTopology)
	block(&s.KernelModuleConfig)
	image(&block(&s.Manager).ImageSpec)
	upgradePolicy(block(&s.UpgradePolicy))
}

// variables sets fields that the policy leaves out from variables in driver.env that mean the same: in NVIDIA's
// operator these reach the driver container, which acts on them.
func variables(s *v1.DriverSpec) {
	rdma := block(&s.RDMA)
	for _, variable := range s.Env {
		set, err := strconv.ParseBool(variable.Value)
		switch {
		case variable.Name == labels.KernelModuleTypeKey && isModuleType(variable.Value):
			value(&s.KernelModuleType, v1.KernelModuleType(variable.Value))
		case err != nil || !set:
		case variable.Name == labels.OpenModulesKey:
			value(&s.KernelModuleType, v1.KernelModuleOpen)
		case variable.Name == labels.RDMAEnabledKey:
			option(&rdma.Enabled, true)
		case variable.Name == labels.HostMOFEDKey:
			option(&rdma.UseHostMOFED, true)
		}
	}
}

func isModuleType(value string) bool {
	return slices.Contains([]v1.KernelModuleType{
		v1.KernelModuleAuto, v1.KernelModuleOpen, v1.KernelModuleProprietary,
	}, v1.KernelModuleType(value))
}

// driverStartupSeconds is how long a driver may take to build and load its modules, as with NVIDIA's probe.
const driverStartupSeconds = 21 * 60

// DriverStartupProbe returns the default times of the driver's start-up probe, for a timeout of one attempt in
// seconds; 0 means the default of 60 s. The short period detects a driver as soon as it is up.
func DriverStartupProbe(timeout int32) v1.ProbeSpec {
	timeout = cmp.Or(timeout, 60)
	return v1.ProbeSpec{
		PeriodSeconds: 1, TimeoutSeconds: timeout, SuccessThreshold: 1,
		FailureThreshold: driverStartupSeconds / max(1, within(timeout)),
	}
}

// DriverProbeWithin is how long an attempt of the driver's start-up probe keeps checking. By default this is 9 s,
// and an attempt succeeds as soon as the driver is up. With times set in the spec it ends one second before the
// next attempt is due, so that a failed attempt counts as one period.
func DriverProbeWithin(probe v1.ProbeSpec) time.Duration {
	seconds := min(probe.PeriodSeconds, probe.TimeoutSeconds) - 1
	if hasDefaultTimes(probe) {
		seconds = within(probe.TimeoutSeconds)
	}
	return max(0, time.Duration(seconds)*time.Second)
}

// hasDefaultTimes reports whether a start-up probe of the driver has the times of DriverStartupProbe.
func hasDefaultTimes(probe v1.ProbeSpec) bool {
	return haveSameTimes(probe, DriverStartupProbe(probe.TimeoutSeconds))
}

// within is how many seconds a default attempt takes, given the timeout after which the kubelet ends it.
func within(timeout int32) int32 { return min(10, timeout) - 1 }

// nvidiaDriverStartupProbe returns the times of the start-up probe in NVIDIA's operator. They complete a probe of
// which the spec sets a part: a user who sets only a threshold counts in NVIDIA's periods.
func nvidiaDriverStartupProbe() v1.ProbeSpec {
	return v1.ProbeSpec{
		InitialDelaySeconds: 60,
		PeriodSeconds:       10,
		TimeoutSeconds:      60,
		SuccessThreshold:    1,
		FailureThreshold:    120,
	}
}

// startupProbe completes the times of the driver's probe. NVIDIA's own times count as unset: its chart writes
// them into every policy.
func startupProbe(s *v1.ProbeSpec) {
	fast, nvidia := DriverStartupProbe(s.TimeoutSeconds), nvidiaDriverStartupProbe()
	value(&s.TimeoutSeconds, fast.TimeoutSeconds)
	value(&s.SuccessThreshold, fast.SuccessThreshold)
	completed := *s
	value(&completed.InitialDelaySeconds, nvidia.InitialDelaySeconds)
	value(&completed.PeriodSeconds, nvidia.PeriodSeconds)
	value(&completed.FailureThreshold, nvidia.FailureThreshold)
	if haveSameTimes(*s, v1.ProbeSpec{}) || haveSameTimes(*s, fast) || haveSameTimes(completed, nvidia) {
		completed.InitialDelaySeconds = fast.InitialDelaySeconds
		completed.PeriodSeconds, completed.FailureThreshold = fast.PeriodSeconds, fast.FailureThreshold
	}
	*s = completed
}

// haveSameTimes reports whether two probes run at the same times.
func haveSameTimes(a, b v1.ProbeSpec) bool {
	return a.InitialDelaySeconds == b.InitialDelaySeconds && a.PeriodSeconds == b.PeriodSeconds &&
		a.FailureThreshold == b.FailureThreshold
}

// upgradePolicy has the defaults of NVIDIA's API, which apply there only if the block is present; without it,
// NVIDIA's operator upgrades nothing automatically either.
func upgradePolicy(s *v1.DriverUpgradePolicySpec) {
	option(&s.AutoUpgrade, false) // NVIDIA's chart has true
	option(&s.Paused, false)      // own
	option(&s.PullImages, true)   // own
	timeouts(block(&s.Timeouts))
	option(&s.MaxParallelUpgrades, 1)
	option(&s.MaxUnavailable, intstr.FromString("25%"))
	option(&block(&s.WaitForCompletion).TimeoutSeconds, 0)
	deletion := block(&s.PodDeletion)
	option(&deletion.Force, false)
	option(&deletion.TimeoutSeconds, 300)
	option(&deletion.DeleteEmptyDir, false)
	drain := block(&s.Drain)
	option(&drain.Enable, false)
	option(&drain.Force, false)
	option(&drain.TimeoutSeconds, 300)
	option(&drain.DeleteEmptyDir, false)
}

// timeouts are a block of this operator only. A driver may build its modules for as long as its start-up probe allows.
func timeouts(s *v1.UpgradeTimeoutsSpec) {
	option(&s.ImagePullSeconds, 600)
	option(&s.DriverSeconds, 1800)
	option(&s.ValidationSeconds, 600)
}

func gds(s *v1.GDSSpec) {
	option(&s.Enabled, false) // NVIDIA
	image(&s.ImageSpec)
}

func gdrcopy(s *v1.GDRCopySpec) {
	option(&s.Enabled, false) // NVIDIA
	image(&s.ImageSpec)
}
