//go:build linux

package nvidia

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// pluginState is where the DRA driver has what it knows about claims.
const pluginState = "/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json"

// allocate runs a pod with one device of a class to the point at which its kubelet would prepare its claim.
func (o *offering) allocate(class string) *resourcev1.ResourceClaim {
	o.t.Helper()
	g := NewWithT(o.t)
	h := &holder{
		name: "on-" + o.node, namespace: metav1.NamespaceDefault,
		extended: corev1.ResourceName("deviceclass.resource.kubernetes.io/" + class),
	}
	_, err := o.cluster.client.CoreV1().Pods(h.namespace).Create(o.t.Context(), h.pod(o.node), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	mapped := o.scheduled(h).Status.ExtendedResourceClaimStatus
	g.Expect(mapped).NotTo(BeNil())
	claim, err := o.cluster.client.ResourceV1().ResourceClaims(h.namespace).
		Get(o.t.Context(), mapped.ResourceClaimName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(claim.Status.Allocation.Devices.Results).To(ConsistOf(
		And(HaveField("Driver", dra.Driver), HaveField("Pool", o.node))))
	return claim
}

// kubelet makes the plugin prepare or unprepare a claim, as its kubelet does.
func (o *offering) kubelet(order string, claim *resourcev1.ResourceClaim) result {
	o.t.Helper()
	p := o.command(o.t.Context(), nil, program{name: "prepare-claim", standIn: standIn},
		"/var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock", order, claim.Namespace, claim.Name, string(claim.UID))
	err := p.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Fatal(err)
	}
	return result{Code: p.ProcessState.ExitCode(), Output: p.log.String()}
}

// serveClaim prepares and unprepares a claim for one device of a class, and returns the device's name and the device
// nodes of its container. After that, the plugin has nothing of the claim.
func (o *offering) serveClaim(class string) (device string, paths []string) {
	o.t.Helper()
	g := NewWithT(o.t)
	claim := o.allocate(class)
	device = claim.Status.Allocation.Devices.Results[0].Device
	described := filepath.Join(o.dir, "run/cdi/k8s.gpu.nvidia.com-claim_"+string(claim.UID)+".yaml")
	// It may be prepared more than once.
	for range 2 {
		got := o.kubelet("prepare", claim)
		g.Expect(got.Code).To(BeZero(), got.Output)
		ids := map[string][]string{}
		g.Expect(json.Unmarshal([]byte(got.Output), &ids)).To(Succeed(), got.Output)
		g.Expect(ids).To(Equal(map[string][]string{device: {"k8s.gpu.nvidia.com/claim=" + string(claim.UID) + "-" + device}}))
	}
	text := readFile(o.t, described)
	g.Expect(text).NotTo(ContainSubstring(o.root), "paths of the host, not of the container")
	var spec cdiSpec
	g.Expect(yaml.Unmarshal([]byte(text), &spec)).To(Succeed())
	g.Expect(spec.Kind).To(Equal("k8s.gpu.nvidia.com/claim"))
	name := string(claim.UID) + "-" + device
	names, nodes := spec.names()
	g.Expect(names).To(Equal([]string{name}))
	g.Expect(readFile(o.t, o.dir+pluginState)).To(And(ContainSubstring(string(claim.UID)),
		ContainSubstring("PrepareCompleted")))

	got := o.kubelet("unprepare", claim)
	g.Expect(got.Code).To(BeZero(), got.Output)
	g.Expect(described).NotTo(BeAnExistingFile())
	g.Expect(readFile(o.t, o.dir+pluginState)).NotTo(ContainSubstring(string(claim.UID)))
	return device, nodes[name]
}

// showCapabilities writes the files of the kernel's driver that have the numbers of a GPU's MIG devices.
func (m *machine) showCapabilities(gpu string) {
	m.t.Helper()
	for line := range strings.Lines(m.read("proc/driver/nvidia-caps/mig-minors")) {
		path, minor, _ := strings.Cut(strings.TrimSpace(line), " ")
		if rest, isOf := strings.CutPrefix(path, gpu+"/"); isOf {
			m.write(filepath.Join("proc/driver/nvidia/capabilities", gpu, "mig", rest),
				"DeviceFileMinor: "+minor+"\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
		}
	}
}
