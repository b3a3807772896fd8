//go:build linux

package node_test

import (
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// target is a program of an operand that can be made to fail.
type target struct {
	operand operand.Name
	// app is the label of its pods, container the one that runs the program.
	app, container, program string
	component               string
	// works is what the program prints once it works, if it has no probe: then it counts as ready when it runs.
	// Empty for programs with probes.
	works string
}

var (
	driverManager = target{
		"driver",
		"nvidia-driver-daemonset",
		"k8s-driver-manager",
		"driver-manager",
		"driver-manager",
		"",
	}
	driver  = target{"driver", "nvidia-driver-daemonset", "nvidia-driver-ctr", "nvidia-driver", "driver", ""}
	toolkit = target{
		"container-toolkit",
		"nvidia-container-toolkit-daemonset",
		"nvidia-container-toolkit-ctr",
		"nvidia-toolkit",
		"container-toolkit",
		"Waiting for signal",
	}
	devicePlugin = target{
		"device-plugin",
		"nvidia-device-plugin-daemonset",
		"nvidia-device-plugin",
		"nvidia-device-plugin",
		"device-plugin",
		"the plugin serves",
	}
	discovery = target{
		"gpu-feature-discovery",
		"gpu-feature-discovery",
		"gpu-feature-discovery",
		"gpu-feature-discovery",
		"gpu-feature-discovery",
		"the labels are written",
	}
	exporter = target{
		"dcgm-exporter",
		"nvidia-dcgm-exporter",
		"nvidia-dcgm-exporter",
		"dcgm-exporter",
		"dcgm-exporter",
		"",
	}
	engine     = target{"dcgm", "nvidia-dcgm", "nvidia-dcgm-ctr", "nv-hostengine", "dcgm", ""}
	partitions = target{
		"mig-manager",
		"nvidia-mig-manager",
		"nvidia-mig-manager",
		"nvidia-mig-manager",
		"mig-manager",
		"the MIG manager runs",
	}
)

// mode is a way to fail.
type mode struct {
	name string
	// order is given to the program; nil: its image is missing.
	order *node.Order
	// pending: the program takes time, as far as can be detected. itself: it recovers without a repair.
	pending, itself bool
	// causes are parts of the cause that must be reported.
	causes func(target) []string
}

// lastWords is what a program prints when it fails.
const lastWords = "the GPU has fallen off the bus"

var (
	exits = mode{name: "exit code", order: &node.Order{Fault: "exit", Message: lastWords, Code: 3},
		causes: func(p target) []string { return []string{p.container, "CrashLoopBackOff", "exit code 3", lastWords} }}
	hangs = mode{name: "hang", order: &node.Order{Fault: "hang"}, pending: true, causes: isStarting}
	// slow is reported once it has lasted for 10 s, and after 10 s in which the kubelet may not report a reason.
	slow = mode{name: "slow start", order: &node.Order{Delay: "30s"}, pending: true, itself: true, causes: isStarting}
	// memory needs a limit, see limited.
	memory = mode{name: "out of memory", order: &node.Order{Fault: "memory"},
		causes: func(p target) []string {
			return []string{p.container, "CrashLoopBackOff", "exit code 137", "OOMKilled"}
		}}
	missing = mode{name: "image missing",
		causes: func(p target) []string {
			return []string{p.container, "ImagePullBackOff", "/" + imageNames[p.component] + ":"}
		}}
)

// hidden reports whether the failure cannot be detected: the program hangs or takes time in a container without probes,
// and no other component needs it. The container runtime needs the toolkit, the kubelet the device plugin.
func (m mode) hidden(p target) bool { return m.pending && (p == discovery || p == partitions) }

// isStarting returns the cause of a program that hangs, which looks like one that takes time.
func isStarting(p target) []string {
	switch p {
	case driverManager:
		return []string{p.container, "is running"}
	case devicePlugin:
		return []string{p.container, "the device plugin is restarting or reports all GPUs as unhealthy"}
	}
	return []string{p.container, "is not ready"}
}

// imageNames are the last parts of the images' names.
var imageNames = map[string]string{
	"driver-manager": "k8s-driver-manager", "driver": "driver", "container-toolkit": "container-toolkit",
	"device-plugin": "k8s-device-plugin", "gpu-feature-discovery": "k8s-device-plugin", "dcgm-exporter": "dcgm-exporter",
	"dcgm":        "dcgm",
	"mig-manager": "k8s-mig-manager",
}

// isAuxiliary reports whether the GPUs of a node can be used without the operand.
func (b *env) isAuxiliary(name operand.Name) bool {
	catalogue, err := operands.Catalogue()
	b.Expect(err).NotTo(HaveOccurred())
	at := slices.IndexFunc(catalogue, func(o operand.Operand) bool { return o.Name == name })
	return catalogue[at].Stage == ""
}

// limited is the sample with all operands whose programs are played, with little memory and short deadlines: shorter
// than any of them hangs, and longer than a slow start.
func limited() *v1.ClusterPolicy {
	limit := func(p target) v1.PlacementSpec {
		return v1.PlacementSpec{ContainerResources: []v1.ContainerResources{{
			Name: p.container, ResourceRequirements: v1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		}}}
	}
	policy := samplePolicy()
	spec := &policy.Spec
	const deadline = "40s"
	spec.Deadlines = &v1.DeadlinesSpec{
		Driver: deadline, Toolkit: deadline, DevicePlugin: deadline, Allocatable: deadline, Validated: deadline,
		Other: deadline,
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
