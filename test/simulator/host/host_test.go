package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

// soon is the time within which the exit of a process must be noticed.
const soon = 20 * time.Second

// machine is a Host with the programs that the project builds.
type machine struct {
	*host.Host
	*WithT
	t       *testing.T
	changed chan struct{}
}

func newMachine(t *testing.T) machine {
	t.Helper()
	g := NewWithT(t)
	gpuNode, standIn, err := cluster.BuildNodePrograms(t.Context(), os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	programs := host.Programs{GPUNode: gpuNode, StandIn: standIn}
	if err := host.Check(programs); err != nil {
		needs.Unmet(t, needs.Root, err)
	}
	changed := make(chan struct{}, 100)
	h, err := host.New(host.Options{
		Node: "node", Dir: filepath.Join(t.TempDir(), "node"), Programs: programs, APIServer: "https://127.0.0.1:6443",
		Hardware: host.Hardware{OS: "ubuntu", OSVersion: "24.04", Kernel: "6.8.0", BootID: "boot", GPUs: 2},
		Changed:  func() { changed <- struct{}{} },
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(h.Close()).To(Succeed()) })
	return machine{Host: h, WithT: g, t: t, changed: changed}
}

// container runs gpu-node with these arguments, with the markers and the driver's root mounted.
func container(uid types.UID, privileged bool, args ...string) host.Container {
	hostPath := func(name, path string) corev1.Volume {
		kind := corev1.HostPathDirectoryOrCreate
		return corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}},
		}
	}
	spec := corev1.Container{
		Name: "c", Command: []string{"/usr/bin/gpu-node"}, Args: args,
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		Env: []corev1.EnvVar{
			{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"},
			{Name: "UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "validations", MountPath: "/run/nvidia/validations"}, {Name: "driver", MountPath: "/run/nvidia/driver"},
			{Name: "host", MountPath: "/host"}, {Name: "char", MountPath: "/host-dev-char"},
		},
	}
	return host.Container{App: "app", Spec: spec, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: uid},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			hostPath("validations", "/run/nvidia/validations"), hostPath("driver", "/run/nvidia/driver"), hostPath("host", "/"),
			hostPath("char", "/dev/char"),
		}},
	}}
}

func (m machine) start(c host.Container) *host.Process {
	m.t.Helper()
	p, err := m.Start(context.Background(), c)
	m.Expect(err).NotTo(HaveOccurred())
	return p
}

// exit waits for the exit of a process, which the machine must have reported.
func (m machine) exit(p *host.Process) host.Exit {
	m.t.Helper()
	m.Eventually(func() bool { _, ended := p.Ended(); return ended }, soon).Should(BeTrue())
	m.Eventually(m.changed, soon).Should(Receive())
	exit, _ := p.Ended()
	return exit
}

func TestValidatorFindsTheDriverAndExecWaitsForTheMarker(t *testing.T) {
	m := newMachine(t)
	m.Expect(m.InstallDriver("driver-pod")).To(Succeed())
	prover := m.start(container("1", true, "validate", "driver", "--driver-container=true"))
	m.Expect(m.exit(prover)).To(Equal(host.Exit{Message: "validated for driver instance driver-pod"}), "%s", m.log())
	m.Expect(os.ReadFile(m.Path("/run/nvidia/validations/driver-ready"))).To(And(
		ContainSubstring("NVIDIA_DRIVER_ROOT=/run/nvidia/driver\n"),
		ContainSubstring("BOOT_ID=boot\nDRIVER_INSTANCE=driver-pod\n")))

	program := m.start(container("2", false, "exec", "--marker=driver", "--", "/usr/local/bin/nvidia-toolkit", "--flag"))
	var env []string
	m.Eventually(func() (became bool) { env, became = program.Became(); return became }, soon).Should(BeTrue())
	m.Expect(env).To(ContainElements("DRIVER_ROOT_CTR_PATH=/driver-root", "UID=2", "KUBERNETES_SERVICE_PORT=6443",
		"METRICS_PORT=0"))
	m.Eventually(m.log, soon).Should(ContainSubstring("nvidia-toolkit --flag runs"))
	program.Terminate()
	m.Expect(m.exit(program)).To(Equal(host.Exit{}))
}

func TestCUDAProgramFindsTheGPUs(t *testing.T) {
	m := newMachine(t)
	c := container("1", false)
	c.Spec.Command = []string{"/usr/bin/gpu-node-cuda"}
	m.Expect(m.exit(m.start(c))).To(Equal(host.Exit{}))
	m.Expect(m.log()).To(And(ContainSubstring("GPU 0 "), ContainSubstring("GPU 1 "), ContainSubstring("the kernel ran")))

	c.App, c.Spec.Args = "session", []string{"nvml", "--root=/", "0000:11:00.0"}
	m.Expect(m.exit(m.start(c))).To(Equal(host.Exit{}))
	m.Expect(m.Log("session", "c")).To(MatchJSON(`{"driver": "580.95.05", "count": 2, "gpus": [
		{"pci": "0000:11:00.0", "uuid": "GPU-00000000-0000-4000-8000-000000000001"}]}`))
}

func TestFailureHasExitCodeAndMessage(t *testing.T) {
	m := newMachine(t)
	m.Expect(m.InstallDriver("driver-pod")).To(Succeed())
	m.Expect(m.SetSMI(9)).To(Succeed())
	for name, test := range map[string]struct {
		injected bool
		wantErr  string
	}{
		"without the runtime there is no program of the driver": {wantErr: "injected no nvidia-smi into this container"},
		"with it, there is the one that fails": {
			injected: true, wantErr: "nvidia-smi fails with exit status 9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := m
			m.WithT = NewWithT(t)
			c := container("1", false, "validate", "toolkit", "--timeout=1s")
			c.Injected = test.injected
			exit := m.exit(m.start(c))
			m.Expect(exit.Code).To(Equal(int32(1)))
			m.Expect(exit.Message).To(ContainSubstring(test.wantErr))
		})
	}
}

func TestKilledProcessHasTheExitCodeOfItsSignal(t *testing.T) {
	m := newMachine(t)
	p := m.start(container("1", false, "hold"))
	m.Expect(m.Processes()).To(ConsistOf(p))
	p.Kill()
	m.Expect(m.exit(p)).To(Equal(host.Exit{Code: 137}))
	m.Expect(m.Processes()).To(BeEmpty())
}

func TestProcessesEndWithPodAndMachine(t *testing.T) {
	m := newMachine(t)
	first, second := m.start(container("1", false, "hold")), m.start(container("2", false, "hold"))
	m.Expect(m.RemovePod("1")).To(Succeed())
	_, firstEnded := first.Ended()
	_, secondEnded := second.Ended()
	m.Expect([]bool{firstEnded, secondEnded}).To(Equal([]bool{true, false}))
	m.Expect(m.Close()).To(Succeed())
	_, secondEnded = second.Ended()
	m.Expect(secondEnded).To(BeTrue())
	m.Expect("/proc/" + strconv.Itoa(second.PID)).NotTo(BeADirectory())
	m.Expect(m.Root()).NotTo(BeADirectory())
}

func TestUnsupportedManifestsAreErrors(t *testing.T) {
	m := newMachine(t)
	directory := corev1.HostPathDirectory
	for wantErr, spoil := range map[string]func(*host.Container){
		"has no volume other": func(c *host.Container) { c.Spec.VolumeMounts[0].Name = "other" },
		"hostPath type check failed: /missing is not a Directory": func(c *host.Container) {
			c.Pod.Spec.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/missing", Type: &directory}
		},
		"the field spec.unknown is not simulated": func(c *host.Container) {
			c.Spec.Env[1].ValueFrom.FieldRef.FieldPath = "spec.unknown"
		},
	} {
		c := container("1", false, "hold")
		spoil(&c)
		_, err := m.Start(t.Context(), c)
		m.Expect(err).To(MatchError(ContainSubstring(wantErr)))
	}
}

func (m machine) log() string {
	m.t.Helper()
	log, err := m.Log("app", "c")
	m.Expect(err).NotTo(HaveOccurred())
	return log
}
