package simulator

import (
	"net"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// userPod returns a pod whose container c has this limit.
func userPod(name string, phase corev1.PodPhase, limit corev1.ResourceName, count string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{limit: resource.MustParse(count)},
		}}}},
	}
}

func TestUsersOfGPUs(t *testing.T) {
	const a, b = `,namespace="ns",pod="a",container="c"`, `,namespace="ns",pod="b",container="c"`
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"once for each GPU, by name": {
			pods: []*corev1.Pod{
				userPod("b", corev1.PodRunning, resourceGPU, "1"), userPod("a", corev1.PodRunning, resourceGPU, "2"),
			},
			want: []string{a, a, b},
		},
		"not before it runs": {pods: []*corev1.Pod{userPod("a", corev1.PodPending, resourceGPU, "1")}},
		"other resources":    {pods: []*corev1.Pod{userPod("a", corev1.PodRunning, corev1.ResourceCPU, "1")}},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(usersOf(test.pods)).To(Equal(test.want)) })
	}
}

func TestMetricsOfBusyAndIdleGPUs(t *testing.T) {
	n := &node{name: "n", partitions: make([]partition, 3)}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		annotationGPUs: "3", annotationModel: ModelH100,
	}}}
	n.object = object
	const (
		node = `,modelName="NVIDIA-H100-80GB-HBM3",Hostname="n"`
		user = `,namespace="ns",pod="a",container="c"} `
	)
	NewWithT(t).Expect(metricsOf(n, object, []*corev1.Pod{userPod("a", corev1.PodRunning, resourceGPU, "2")})).To(Equal(
		`DCGM_FI_DEV_GPU_UTIL{gpu="0"` + node + user + "91\n" +
			`DCGM_FI_DEV_FB_USED{gpu="0"` + node + user + "74218\n" +
			`DCGM_FI_DEV_FB_FREE{gpu="0"` + node + user + "7341\n" +
			`DCGM_FI_DEV_POWER_USAGE{gpu="0"` + node + user + "616\n" +
			`DCGM_FI_DEV_GPU_TEMP{gpu="0"` + node + user + "66.4\n" +
			`DCGM_FI_DEV_GPU_UTIL{gpu="1"` + node + user + "98\n" +
			`DCGM_FI_DEV_FB_USED{gpu="1"` + node + user + "79927\n" +
			`DCGM_FI_DEV_FB_FREE{gpu="1"` + node + user + "1632\n" +
			`DCGM_FI_DEV_POWER_USAGE{gpu="1"` + node + user + "658\n" +
			`DCGM_FI_DEV_GPU_TEMP{gpu="1"` + node + user + "69.2\n" +
			`DCGM_FI_DEV_GPU_UTIL{gpu="2"` + node + "} 0\n" +
			`DCGM_FI_DEV_FB_USED{gpu="2"` + node + "} 0\n" +
			`DCGM_FI_DEV_FB_FREE{gpu="2"` + node + "} 81559\n" +
			`DCGM_FI_DEV_POWER_USAGE{gpu="2"` + node + "} 70\n" +
			`DCGM_FI_DEV_GPU_TEMP{gpu="2"` + node + "} 30\n"))
}

func TestFailureInTheLog(t *testing.T) {
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "it failed"}}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: ended(1)}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "restarted", LastTerminationState: ended(1)}, {Name: "succeeded", State: ended(0)}, {Name: "runs"},
		},
	}}
	for container, want := range map[string]string{
		"init": "it failed", "restarted": "it failed", "succeeded": "", "runs": "",
	} {
		NewWithT(t).Expect(failureOf(pod, container)).To(Equal(want), container)
	}
}

func TestDriverVersion(t *testing.T) {
	for image, want := range map[string]string{
		"host:5000/nvidia/driver:580.95.05-ubuntu24.04": "580.95.05", "nvidia/driver:580.95.05": "580.95.05",
	} {
		driver := &pod{app: appDriver, mains: []*container{{ready: true, spec: corev1.Container{Image: image}}}}
		n := &node{pods: map[types.UID]*pod{"driver": driver}}
		NewWithT(t).Expect(n.driverVersion()).To(Equal(want), image)
		driver.app = appToolkit
		NewWithT(t).Expect(n.driverVersion()).To(BeEmpty(), "no pod of %s drives", image)
	}
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	g := NewWithT(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer other.Close()
	_, port, err := net.SplitHostPort(other.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newServer("127.0.0.1", port, nil)
	g.Expect(err).To(MatchError(And(ContainSubstring(other.Addr().String()), ContainSubstring("end what uses the port"))))
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.3", exporterPort))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(CanServe("127.0.0.3")).To(MatchError(ContainSubstring("127.0.0.3:9400")))
	g.Expect(taken.Close()).To(Succeed())
	g.Expect(CanServe("127.0.0.3")).To(Succeed())
	g.Expect(CanServe("127.0.0.3")).To(Succeed(), "it leaves the port free")
}
