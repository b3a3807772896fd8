package render_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// bareNode simulates a node on which nothing runs yet. It reads only the manifests: what a pod waits for, and what
// becomes true once it runs.
type bareNode struct {
	// facts that are true: "discovered", "handler" (the runtime can inject GPUs, itself or through the toolkit), "driver
	// installed", "allocatable", and "marker NAME" for each marker.
	facts map[string]bool
	// done counts the containers of each pod that have completed or are running.
	done map[string]int
}

// run starts pods and runs their containers in order, until nothing changes any more. It returns the container at which
// each blocked pod is stuck.
func (n *bareNode) run(sets []*appsv1.DaemonSet) map[string]string {
	for moved := true; moved; {
		moved = false
		for _, ds := range sets {
			moved = n.advance(ds) || moved
		}
	}
	stuck := map[string]string{}
	for _, ds := range sets {
		pod := ds.Spec.Template.Spec
		containers := slices.Concat(pod.InitContainers, pod.Containers)
		switch at := n.done[ds.Name]; {
		case !n.starts(pod):
			stuck[ds.Name] = "its pod does not start"
		case at < len(containers):
			stuck[ds.Name] = containers[at].Name
		}
	}
	return stuck
}

func (n *bareNode) advance(ds *appsv1.DaemonSet) (moved bool) {
	pod := ds.Spec.Template.Spec
	containers := slices.Concat(pod.InitContainers, pod.Containers)
	for n.starts(pod) && n.done[ds.Name] < len(containers) {
		next := containers[n.done[ds.Name]]
		if !n.isInjected(ds, next) || !n.finish(next) {
			break
		}
		n.done[ds.Name]++
		moved = true
	}
	return moved
}

// starts reports whether the node is selected and the runtime can create the pod's sandbox.
func (n *bareNode) starts(pod corev1.PodSpec) bool {
	for key := range pod.NodeSelector {
		if strings.HasPrefix(key, "nvidia.com/") && !n.facts["discovered"] {
			return false
		}
	}
	return pod.RuntimeClassName == nil || n.facts["handler"]
}

// isInjected reports whether the container gets the GPUs that its annotation requests. Without the toolkit's plugin,
// the runtime creates it without GPUs, so that it fails and is re-created.
func (n *bareNode) isInjected(ds *appsv1.DaemonSet, container corev1.Container) bool {
	_, annotated := ds.Spec.Template.Annotations["nvidia.cdi.k8s.io/container."+container.Name]
	return !annotated || n.facts["handler"]
}

// finish reports whether the container completes or runs successfully, and records the facts that become true.
func (n *bareNode) finish(container corev1.Container) bool {
	argv := slices.Concat(container.Command, container.Args)
	if !isGPUNode(argv) {
		n.facts["driver installed"] = n.facts["driver installed"] || container.Name == "nvidia-driver-ctr"
		return true
	}
	switch argv[1] {
	case "discover":
		n.facts["discovered"] = true
	case "wait":
		return n.markers(strings.TrimPrefix(argv[2], "--for="))
	case "exec":
		if argv[2] == "--driver-container" {
			return n.facts["driver installed"]
		}
		if !n.markers(strings.TrimPrefix(argv[2], "--marker=")) {
			return false
		}
		n.facts["handler"] = n.facts["handler"] || slices.Contains(argv, "nvidia-toolkit")
		n.facts["allocatable"] = n.facts["allocatable"] || slices.Contains(argv, "nvidia-device-plugin")
	case "validate":
		needs := map[string]string{
			"driver":  "driver installed",
			"toolkit": "handler",
			"cuda":    "handler",
			"plugin":  "allocatable",
		}
		if !n.facts[needs[argv[2]]] {
			return false
		}
		n.facts["marker "+argv[2]] = true
	}
	return true
}

// isGPUNode reports whether the container runs gpu-node. Some containers have no command.
func isGPUNode(argv []string) bool { return len(argv) > 0 && path.Base(argv[0]) == "gpu-node" }

func (n *bareNode) markers(names string) bool {
	return !slices.ContainsFunc(strings.Split(names, ","), func(name string) bool { return !n.facts["marker "+name] })
}

// specWithout returns a spec that leaves some operands to the host, and the facts that the host then provides.
func specWithout(bits int) (v1.ClusterPolicySpec, map[string]bool) {
	off := func(bit int) *bool { return new(bits&bit == 0) }
	spec := v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{Enabled: off(1)}, Toolkit: &v1.ToolkitSpec{Enabled: off(2)},
		DevicePlugin: &v1.DevicePluginSpec{
			Enabled: off(4),
		}, CDI: &v1.CDISpec{Enabled: off(8), NRIPluginEnabled: new(bits&32 != 0)},
	}
	host := map[string]bool{"driver installed": bits&1 != 0, "handler": bits&2 != 0, "allocatable": false}
	if bits&16 != 0 {
		spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
		host["discovered"] = true
	}
	return spec, host
}

// From a bare node, every pod starts and every marker is written, whatever the spec leaves to the host.
func TestEveryMarkerIsReachedFromABareNode(t *testing.T) {
	for bits := range 64 {
		spec, host := specWithout(bits)
		if *spec.CDI.NRIPluginEnabled && (!*spec.CDI.Enabled || !*spec.Toolkit.Enabled) {
			// The spec is refused.
			continue
		}
		t.Run(fmt.Sprintf("%05b", bits), func(t *testing.T) {
			node := bareNode{facts: host, done: map[string]int{}}
			nodes := []nodeinfo.Facts{runs("containerd", "")}
			if stuck := node.run(all(situation{spec: spec, nodes: nodes}.daemonSets(t))); len(stuck) > 0 {
				t.Fatalf("stuck: %v; reached: %v", stuck, node.facts)
			}
			want := []string{"marker driver", "marker toolkit", "marker cuda"}
			if *spec.DevicePlugin.Enabled {
				want = append(want, "marker plugin")
			}
			for _, marker := range want {
				if !node.facts[marker] {
					t.Errorf("%s is not reached", marker)
				}
			}
		})
	}
}

// The simulation detects a container that waits for its own marker, wherever it is.
func TestTheSimulationDetectsADeadlock(t *testing.T) {
	tests := map[string]func(sets map[operand.Name][]*appsv1.DaemonSet){
		"the driver validation waits for the driver": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			prependWait(sets["container-toolkit"][0], "driver")
		},
		"the toolkit validation waits for the toolkit": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			prependWait(sets["operator-validator"][0], "toolkit")
		},
		"the plugin waits for its own validation": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			prependWait(sets["device-plugin"][0], "plugin")
		},
		"the toolkit needs the RuntimeClass that it configures": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			sets["container-toolkit"][0].Spec.Template.Spec.RuntimeClassName = new("nvidia")
		},
		"the driver validation gets its GPUs from a later toolkit": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			annotations := sets["container-toolkit"][0].Spec.Template.Annotations
			annotations["nvidia.cdi.k8s.io/container.driver-validation"] = "management.nvidia.com/gpu=all"
		},
		"discovery selects nodes by what it finds": func(sets map[operand.Name][]*appsv1.DaemonSet) {
			sets["node-discovery"][0].Spec.Template.Spec.NodeSelector = map[string]string{
				"nvidia.com/gpu.deploy.node-discovery": "true",
			}
		},
	}
	for name, breakManifest := range tests {
		t.Run(name, func(t *testing.T) {
			sets := situation{}.daemonSets(t)
			breakManifest(sets)
			node := bareNode{facts: map[string]bool{}, done: map[string]int{}}
			if stuck := node.run(all(sets)); len(stuck) == 0 {
				t.Error("no deadlock was detected")
			}
		})
	}
}

func prependWait(ds *appsv1.DaemonSet, marker string) {
	pod := &ds.Spec.Template.Spec
	pod.InitContainers = append([]corev1.Container{{
		Name: "wait", Command: []string{"gpu-node"}, Args: []string{"wait", "--for=" + marker},
	}}, pod.InitContainers...)
}

func all(sets map[operand.Name][]*appsv1.DaemonSet) []*appsv1.DaemonSet {
	var every []*appsv1.DaemonSet
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		every = append(every, sets[name]...)
	}
	return every
}
