package effective

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func driver(s *v1.DriverSpec) {
	option(&s.Enabled, true)                             // NVIDIA
	option(&s.UseNvidiaDriverCRD, false)                 // NVIDIA
	option(&s.UsePrecompiled, false)                     // NVIDIA
	value(&s.KernelModuleType, v1.KernelModuleAuto)      // NVIDIA
	startupProbe(block(&s.StartupProbe))                 // NVIDIA
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
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

// startupProbe gives a driver that builds its modules 21 minutes.
func startupProbe(s *v1.ProbeSpec) {
	value(&s.InitialDelaySeconds, 60)
	value(&s.PeriodSeconds, 10)
	value(&s.TimeoutSeconds, 60)
	value(&s.SuccessThreshold, 1)
	value(&s.FailureThreshold, 120)
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
