package simulator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultGPUs is the default number of GPUs of a node.
const defaultGPUs = 8

// NodeSpec describes one node. The zero value of each field is the common case.
type NodeSpec struct {
	// Name defaults to gpu-00000 and so on.
	Name string
	// OS and OSVersion are ID and VERSION_ID of /etc/os-release: ubuntu and 24.04.
	OS, OSVersion string
	// Kernel is the full release: 6.8.0-60-generic.
	Kernel string
	// Arch is the CPU architecture: amd64.
	Arch string
	// Runtime is the container runtime with its version: containerd://2.1.4.
	Runtime string
	// Kubelet is the kubelet's version, such as v1.36.3; the default is the API server's.
	Kubelet string
	// GPUs defaults to 8; NoGPU creates a node without any, which discovery still labels.
	GPUs  int
	NoGPU bool
	// Model of the GPUs, such as ModelH100. With one, GPU Feature Discovery labels the node, and its MIG manager
	// partitions GPUs that support it. The default is unknown: nothing is labelled or partitioned.
	Model string
	// Advertised: the GPUs are allocatable from the beginning, as if a device plugin had registered. A running simulator
	// resets this until the node's device plugin runs.
	Advertised bool
	// Undiscovered: Node Feature Discovery has not labelled the node. It is labelled once an init container has run
	// gpu-node discover there.
	Undiscovered bool
	// NeverDiscovered: the node is never labelled, whatever runs there.
	NeverDiscovered bool
	// Processes makes each container whose command is gpu-node really run it, on a machine of its own below a temporary
	// directory. Needs Options.Programs.
	Processes bool
	// DriverOnHost and ToolkitOnHost: they are part of the node's image.
	DriverOnHost, ToolkitOnHost bool
	// Labels are added last, and replace those of the same key.
	Labels map[string]string
	Taints []corev1.Taint
	// Annotations are added too, and Unschedulable is a cordon.
	Annotations   map[string]string
	Unschedulable bool
}

// AddNodes creates n default GPU nodes and returns their names.
func (s *Simulator) AddNodes(ctx context.Context, n int) ([]string, error) {
	return s.AddNodesOf(ctx, n, NodeSpec{})
}

// AddNodesOf creates n nodes from a spec without a name, and returns their names.
func (s *Simulator) AddNodesOf(ctx context.Context, n int, spec NodeSpec) ([]string, error) {
	const parallel = 16
	names := make([]string, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range names {
		group.Go(func() (err error) {
			names[i], err = s.AddNode(ctx, spec)
			return err
		})
	}
	return names, group.Wait()
}

// AddNode creates a node, ready and labelled as after node discovery, and returns its name.
func (s *Simulator) AddNode(ctx context.Context, spec NodeSpec) (string, error) {
	serial := s.serial.Add(1) - 1
	spec = spec.withDefaults(serial)
	spec.Kubelet = cmp.Or(spec.Kubelet, s.kubelet)
	if err := s.CanRunProcesses(); spec.Processes && err != nil {
		return "", fmt.Errorf("create node %s: %w", spec.Name, err)
	}
	if _, known := models[spec.Model]; spec.Model != "" && !known {
		return "", fmt.Errorf("create node %s: the model %s of GPU is unknown", spec.Name, spec.Model)
	}
	node := spec.node(serial)
	s.endpoints.publish(node)
	if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create node %s: %w", spec.Name, err)
	}
	return spec.Name, nil
}

func (n NodeSpec) withDefaults(serial int64) NodeSpec {
	defaults := []struct {
		field *string
		value string
	}{
		{&n.Name, fmt.Sprintf("gpu-%05d", serial)},
		{&n.OS, "ubuntu"}, {&n.OSVersion, "24.04"}, {&n.Kernel, "6.8.0-60-generic"},
		{&n.Arch, "amd64"}, {&n.Runtime, "containerd://2.1.4"},
	}
	for _, d := range defaults {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if n.GPUs == 0 {
		n.GPUs = defaultGPUs
	}
	if n.NoGPU {
		n.GPUs = 0
	}
	return n
}

// node returns the Node as its kubelet and node discovery report it.
func (n NodeSpec) node(serial int64) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("96"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("250"),
	}
	if n.Advertised {
		resources[resourceGPU] = *resource.NewQuantity(int64(n.GPUs), resource.DecimalSI)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        n.Name,
			Labels:      n.labels(),
			Annotations: n.annotations(),
		},
		Spec: corev1.NodeSpec{Taints: n.Taints, Unschedulable: n.Unschedulable},
		Status: corev1.NodeStatus{
			Phase:       corev1.NodeRunning,
			Capacity:    resources,
			Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeAddress(serial)},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			Conditions: nodeConditions(metav1.NewTime(time.Now())),
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            n.Arch,
				OperatingSystem:         "linux",
				OSImage:                 n.OS + " " + n.OSVersion,
				KernelVersion:           n.Kernel,
				ContainerRuntimeVersion: n.Runtime,
				KubeletVersion:          n.Kubelet,
				BootID:                  "boot-" + n.Name,
			},
		},
	}
}

func (n NodeSpec) labels() map[string]string {
	labels := map[string]string{
		simulatedLabel:           simulatedValue,
		corev1.LabelHostname:     n.Name,
		corev1.LabelArchStable:   n.Arch,
		corev1.LabelOSStable:     "linux",
		corev1.LabelTopologyZone: "zone-a",
	}
	if !n.Undiscovered && !n.NeverDiscovered {
		maps.Copy(labels, discovered(n.OS, n.OSVersion, n.Kernel, n.GPUs))
	}
	maps.Copy(labels, n.Labels)
	return labels
}

func (n NodeSpec) annotations() map[string]string {
	annotations := map[string]string{
		kwokAnnotation:          kwokValue,
		annotationGPUs:          strconv.Itoa(n.GPUs),
		annotationDriverOnHost:  strconv.FormatBool(n.DriverOnHost),
		annotationToolkitOnHost: strconv.FormatBool(n.ToolkitOnHost),
	}
	if n.Model != "" {
		annotations[annotationModel] = n.Model
	}
	if n.Processes {
		annotations[annotationProcesses] = strconv.FormatBool(true)
	}
	switch {
	case n.NeverDiscovered:
		annotations[annotationDiscovery] = discoveryNever
	case n.Undiscovered:
		annotations[annotationDiscovery] = discoveryByProgram
	default:
		annotations[annotationDiscovery] = discoveryByNFD
		annotations[featureLabels] = listed(discovered(n.OS, n.OSVersion, n.Kernel, n.GPUs))
	}
	maps.Copy(annotations, n.Annotations)
	return annotations
}

// nodeConditions returns the conditions of a healthy kubelet.
func nodeConditions(now metav1.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// nodeAddress and podAddress number the nodes and pods in two private networks.
func nodeAddress(serial int64) string { return address(172, 16, serial) }

func podAddress(serial int64) string { return address(10, 128, serial) }

func address(first, second byte, serial int64) string {
	host := serial + 1
	return fmt.Sprintf("%d.%d.%d.%d", first, int64(second)+host>>16, host>>8&0xff, host&0xff)
}
