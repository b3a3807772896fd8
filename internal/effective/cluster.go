package effective

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

func operator(s *v1.OperatorSpec) {
	value(&s.RuntimeClass, labels.DefaultRuntimeClass)             // NVIDIA
	option(&s.RefreshHelpers, false)                               // own
	option(&s.UseOCPDriverToolkit, true)                           // NVIDIA, on OpenShift; elsewhere it decides nothing
	serviceMonitor(block(&block(&s.Metrics).ServiceMonitor), true) // own: NVIDIA's operator always has one
}

// global is this operator's own.
func global(s *v1.GlobalSpec) {
	block(&s.Proxy)
	value(&block(&s.CABundle).Key, "ca-bundle.crt") // own: the key of bundles that OpenShift makes
}

// nodeDiscovery is this operator's own.
func nodeDiscovery(s *v1.NodeDiscoverySpec) {
	value(&s.Mode, v1.DiscoveryAuto)
	option(&s.GracePeriod, metav1.Duration{Duration: 10 * time.Minute})
	if len(s.Tolerations) == 0 {
		// Whatever is tainted may have GPUs, and it does nothing there that a taint could mind.
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

// MaxUnavailable is how many pods of a DaemonSet may be down at once: what the spec says, else 1, as in
// NVIDIA's chart. Of pods that discover nodes it is 10% then: they run on every node, and no work depends on
// their being there all the time.
func (s Spec) MaxUnavailable(discovers bool) intstr.IntOrString {
	switch given := s.DaemonSets.RollingUpdate.MaxUnavailable; {
	case given != nil:
		// The field is a string in the policies of many users; "1" means the number.
		return intstr.Parse(given.String())
	case discovers:
		return intstr.FromString("10%")
	}
	return intstr.FromInt32(1)
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
