package effective

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func driver(s *v1.DriverSpec) {
	option(&s.Enabled, true)                        // NVIDIA
	option(&s.UseNvidiaDriverCRD, false)            // NVIDIA
	option(&s.UsePrecompiled, false)                // NVIDIA
	value(&s.KernelModuleType, v1.KernelModuleAuto) // NVIDIA
	startupProbe(block(&s.StartupProbe))
	block(&s.LivenessProbe)                              // an empty one is none
	block(&s.ReadinessProbe)                             // an empty one is none
	option(&block(&s.RDMA).Enabled, false)               // NVIDIA
	option(&s.RDMA.UseHostMOFED, false)                  // NVIDIA
	option(&block(&s.LicensingConfig).NLSEnabled, false) // NVIDIA; its chart has true
	block(&s.RepoConfig)
	block(&s.CertConfig)
	block(&s.VirtualTopology)
	block(&s.KernelModuleConfig)
	image(&block(&s.Manager).ImageSpec)
	upgradePolicy(block(&s.UpgradePolicy))
}

// driverPatience is how many seconds a driver has to build and load its modules, as with NVIDIA's probe.
const driverPatience = 21 * 60

// DriverStartupProbe returns the times of the driver's start-up probe by default, for a timeout of one attempt; 0 is the
// default of 60 s. A driver that is up at once is noticed at once.
func DriverStartupProbe(timeout int32) v1.ProbeSpec {
	timeout = cmp.Or(timeout, 60)
	return v1.ProbeSpec{
		PeriodSeconds: 1, TimeoutSeconds: timeout, SuccessThreshold: 1,
		FailureThreshold: driverPatience / max(1, within(timeout)),
	}
}

// DriverProbeWithin is how long an attempt of the driver's start-up probe goes on looking. By default an attempt
// looks for 9 s and succeeds as soon as the driver is up. With times of the spec it ends a second before the next one
// is due: one that fails counts as one period.
func DriverProbeWithin(probe v1.ProbeSpec) time.Duration {
	seconds := min(probe.PeriodSeconds, probe.TimeoutSeconds) - 1
	if HasDefaultTimes(probe) {
		seconds = within(probe.TimeoutSeconds)
	}
	return max(0, time.Duration(seconds)*time.Second)
}

// HasDefaultTimes reports whether a start-up probe of the driver has the times of DriverStartupProbe.
func HasDefaultTimes(probe v1.ProbeSpec) bool {
	return haveSameTimes(probe, DriverStartupProbe(probe.TimeoutSeconds))
}

// within is how many seconds an attempt takes by default that the kubelet ends after this timeout.
func within(timeout int32) int32 { return min(10, timeout) - 1 }

// NVIDIADriverStartupProbe returns the times by which NVIDIA's operator probes a driver. They complete a probe of which
// the spec sets some: by a threshold alone users mean so many periods of NVIDIA's.
func NVIDIADriverStartupProbe() v1.ProbeSpec {
	return v1.ProbeSpec{InitialDelaySeconds: 60, PeriodSeconds: 10, TimeoutSeconds: 60, SuccessThreshold: 1, FailureThreshold: 120}
}

// startupProbe completes the times of the driver's probe. Those of NVIDIA are nobody's choice: its chart writes them into
// every policy.
func startupProbe(s *v1.ProbeSpec) {
	early, nvidia := DriverStartupProbe(s.TimeoutSeconds), NVIDIADriverStartupProbe()
	value(&s.TimeoutSeconds, early.TimeoutSeconds)
	value(&s.SuccessThreshold, early.SuccessThreshold)
	completed := *s
	value(&completed.InitialDelaySeconds, nvidia.InitialDelaySeconds)
	value(&completed.PeriodSeconds, nvidia.PeriodSeconds)
	value(&completed.FailureThreshold, nvidia.FailureThreshold)
	if haveSameTimes(*s, v1.ProbeSpec{}) || haveSameTimes(*s, early) || haveSameTimes(completed, nvidia) {
		completed.InitialDelaySeconds, completed.PeriodSeconds, completed.FailureThreshold = early.InitialDelaySeconds, early.PeriodSeconds, early.FailureThreshold
	}
	*s = completed
}

// haveSameTimes reports whether two probes ask at the same times.
func haveSameTimes(a, b v1.ProbeSpec) bool {
	return a.InitialDelaySeconds == b.InitialDelaySeconds && a.PeriodSeconds == b.PeriodSeconds && a.FailureThreshold == b.FailureThreshold
}

// upgradePolicy has the defaults of NVIDIA's API, which hold there only if the block is given; without it,
// nothing is upgraded automatically there either.
func upgradePolicy(s *v1.DriverUpgradePolicySpec) {
	option(&s.AutoUpgrade, false) // NVIDIA's chart has true
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

func gds(s *v1.GDSSpec) {
	option(&s.Enabled, false) // NVIDIA
	image(&s.ImageSpec)
}

func gdrcopy(s *v1.GDRCopySpec) {
	option(&s.Enabled, false) // NVIDIA
	image(&s.ImageSpec)
}
