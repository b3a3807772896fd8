package effective

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

func operator(s *v1.OperatorSpec) {
	value(&s.RuntimeClass, labels.DefaultRuntimeClass)             // NVIDIA
	option(&s.RefreshHelpers, false)                               // own
	option(&s.KeepWithoutNodes, false)                             // own: nothing is installed without a GPU node
	option(&s.UseOCPDriverToolkit, true)                           // NVIDIA; no effect outside OpenShift
	serviceMonitor(block(&block(&s.Metrics).ServiceMonitor), true) // own: NVIDIA's operator always has one
}

// global is a block of this operator only.
func global(s *v1.GlobalSpec) {
	block(&s.Proxy)
	value(&block(&s.CABundle).Key, "ca-bundle.crt") // own: the key of bundles that OpenShift makes
}

// nodeDiscovery is a block of this operator only.
func nodeDiscovery(s *v1.NodeDiscoverySpec) {
	value(&s.Mode, v1.DiscoveryAuto)
	option(&s.GracePeriod, metav1.Duration{Duration: 10 * time.Minute})
	if len(s.Tolerations) == 0 {
		// Tainted nodes may have GPUs too, and discovery uses no GPU there.
		s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
}

func daemonSets(s *v1.DaemonSetsSpec) {
	if len(s.Tolerations) == 0 { // NVIDIA
		s.Tolerations = []corev1.Toleration{{
			Key: labels.TaintGPU, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}}
	}
	value(&s.PriorityClassName, "system-node-critical") // NVIDIA
	value(&s.UpdateStrategy, "RollingUpdate")           // NVIDIA
	block(&s.RollingUpdate)                             // see MaxUnavailable
	block(&s.PodSecurityContext)                        // none
}

// MaxUnavailable is how many pods of a DaemonSet may be unavailable at a time: the value of the spec, else 1, as
// in NVIDIA's chart. For node discovery the default is 10%: its pods run on every node, and no GPU work depends
// on them. A value with which no pod could be replaced, which the API server refuses, means the default, too.
func (s Spec) MaxUnavailable(discovers bool) intstr.IntOrString {
	switch given := s.DaemonSets.RollingUpdate.MaxUnavailable; {
	case allowsAny(given):
		return *given
	case discovers:
		return intstr.FromString("10%")
	}
	return intstr.FromInt32(1)
}

// allowsAny reports whether a number or percentage is above 0.
func allowsAny(given *intstr.IntOrString) bool {
	count, err := intstr.GetScaledValueFromIntOrPercent(given, 100, true)
	return err == nil && count > 0
}

func hostPaths(s *v1.HostPathsSpec) {
	value(&s.RootFS, "/")                           // NVIDIA's chart
	value(&s.DriverInstallDir, labels.DriverRoot)   // NVIDIA's chart
	value(&s.KubeletRootDir, labels.KubeletRootDir) // the kubelet's own
}

func cdi(s *v1.CDISpec) {
	option(&s.Enabled, true)           // NVIDIA
	option(&s.NRIPluginEnabled, false) // NVIDIA
}
