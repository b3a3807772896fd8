//go:build linux

package node_test

import (
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// patient is a program of an operand that can be made to fail.
type patient struct {
	operand operand.Name
	// app is the label of its pods, container the one that runs the program.
	app, container, program string
	component               string
	// works is what the program prints once it works, where nobody asks the container how it is: it counts as
	// ready when it runs. Empty for those with probes.
	works string
}

var (
	driverManager = patient{"driver", "nvidia-driver-daemonset", "k8s-driver-manager", "driver-manager", "driver-manager", ""}
	driver        = patient{"driver", "nvidia-driver-daemonset", "nvidia-driver-ctr", "nvidia-driver", "driver", ""}
	toolkit       = patient{"container-toolkit", "nvidia-container-toolkit-daemonset", "nvidia-container-toolkit-ctr", "nvidia-toolkit", "container-toolkit", "the toolkit runs"}
	devicePlugin  = patient{"device-plugin", "nvidia-device-plugin-daemonset", "nvidia-device-plugin", "nvidia-device-plugin", "device-plugin", "the plugin serves"}
	discovery     = patient{"gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery", "the labels are written"}
	exporter      = patient{"dcgm-exporter", "nvidia-dcgm-exporter", "nvidia-dcgm-exporter", "dcgm-exporter", "dcgm-exporter", ""}
	engine        = patient{"dcgm", "nvidia-dcgm", "nvidia-dcgm-ctr", "nv-hostengine", "dcgm", ""}
	partitions    = patient{"mig-manager", "nvidia-mig-manager", "nvidia-mig-manager", "nvidia-mig-manager", "mig-manager", "the MIG manager runs"}
)

// mode is a way to fail.
type mode struct {
	name string
	// order is given to the program; nil: its image is missing.
	order *node.Order
	// onItsWay: what fails needs time, for all that anybody knows. itself: it does, and is well without a cure.
	onItsWay, itself bool
	// says are parts of what is to be told of the cause.
	says func(patient) []string
}

// lastWords is what a program says as it fails.
const lastWords = "the GPU has fallen off the bus"

var (
	exits = mode{name: "exit code", order: &node.Order{Fault: "exit", Message: lastWords, Code: 3},
		says: func(p patient) []string { return []string{p.container, "CrashLoopBackOff", "exit code 3", lastWords} }}
	hangs = mode{name: "hang", order: &node.Order{Fault: "hang"}, onItsWay: true, says: isStarting}
	// slow is told once it has lasted for 10 s, and after 10 s in which the kubelet may not say what it lacks.
	slow = mode{name: "slow start", order: &node.Order{Delay: "30s"}, onItsWay: true, itself: true, says: isStarting}
	// memory needs a limit, see limited.
	memory = mode{name: "out of memory", order: &node.Order{Fault: "memory"},
		says: func(p patient) []string {
			return []string{p.container, "CrashLoopBackOff", "exit code 137", "OOMKilled"}
		}}
	missing = mode{name: "image missing",
		says: func(p patient) []string {
			return []string{p.container, "ImagePullBackOff", "/" + imageNames[p.component] + ":"}
		}}
)

// untold tells whether nobody can know of it: the program hangs or needs time in a container without probes, and
// nobody needs what it does. Of the toolkit the container runtime needs it, of the device plugin the kubelet.
func (m mode) untold(p patient) bool { return m.onItsWay && (p == discovery || p == partitions) }

// isStarting: that a program hangs is not to be told from that it needs time.
func isStarting(p patient) []string {
	switch p {
	case driverManager:
		return []string{p.container, "is running"}
	case devicePlugin:
		return []string{p.container, "the device plugin reports all GPUs as unhealthy"}
	}
	return []string{p.container, "is not ready"}
}

// imageNames are the last parts of the images' names.
var imageNames = map[string]string{
	"driver-manager": "k8s-driver-manager", "driver": "driver", "container-toolkit": "container-toolkit",
	"device-plugin": "k8s-device-plugin", "gpu-feature-discovery": "k8s-device-plugin", "dcgm-exporter": "dcgm-exporter", "dcgm": "dcgm",
	"mig-manager": "k8s-mig-manager",
}

// besideLadder tells whether the GPUs of a node can be used without the operand.
func (b *bed) besideLadder(name operand.Name) bool {
	catalogue, err := operands.Catalogue()
	b.Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(catalogue, func(o operand.Operand) bool { return o.Name == name })
	return catalogue[at].Stage == ""
}

// limited is the sample with all operands whose programs are played, which may have little memory, and little time:
// less than any of them hangs, and more than it takes to start slowly.
func limited() *v1.ClusterPolicy {
	limit := func(p patient) v1.PlacementSpec {
		return v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{
			Name: p.container, ResourceRequirements: v1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		}}}
	}
	policy := samplePolicy()
	spec := &policy.Spec
	const deadline = "40s"
	spec.Deadlines = &v1.DeadlinesSpec{
		Driver: deadline, Toolkit: deadline, DevicePlugin: deadline, Allocatable: deadline, Validated: deadline, Other: deadline,
	}
	spec.Driver = &v1.DriverSpec{PlacementSpec: limit(driver)}
	spec.Driver.ContainerResources = append(spec.Driver.ContainerResources, limit(driverManager).ContainerResources...)
	spec.Toolkit = &v1.ToolkitSpec{PlacementSpec: limit(toolkit)}
	spec.DevicePlugin = &v1.DevicePluginSpec{PlacementSpec: limit(devicePlugin)}
	spec.GFD = &v1.GFDSpec{PlacementSpec: limit(discovery)}
	spec.DCGMExporter = &v1.DCGMExporterSpec{PlacementSpec: limit(exporter)}
	spec.DCGM = &v1.DCGMSpec{Enabled: new(true), PlacementSpec: limit(engine)}
	spec.MIGManager = &v1.MIGManagerSpec{PlacementSpec: limit(partitions)}
	return policy
}
