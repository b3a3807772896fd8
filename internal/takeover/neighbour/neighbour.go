package neighbour

import (
	"cmp"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Neighbour is something that others run on a node.
type Neighbour struct {
	Kind Kind `json:"kind"`
	// Workload is what has created its pod, or the pod itself, such as "DaemonSet kube-system/nvidia-gpu-device-plugin".
	Workload string `json:"workload"`
}

// candidates are the labels by which charts and manifests of neighbours mark their pods.
var candidates = map[string][]string{
	// The charts of NVIDIA's device plugin, which also installs GPU Feature Discovery, and of the DCGM exporter; the
	// exporter that GKE manages.
	labels.Name: {
		"nvidia-device-plugin", "gpu-feature-discovery", "dcgm-exporter", "nvidia-dcgm-exporter", "gke-managed-dcgm-exporter",
		// The charts of NVIDIA's DRA driver by their release, and what NVIDIA's operator installs of it.
		"dra-driver-nvidia-gpu", "nvidia-dra-driver-gpu", "nvidia-dra-driver",
	},
	// HAMi.
	labels.Component: {"hami-device-plugin"},
	// The manifest of NVIDIA's device plugin, which clouds and distributions install, too.
	"name": {"nvidia-device-plugin-ds", "nvidia-gpu-device-plugin"},
	// GKE.
	"k8s-app": {"nvidia-gpu-device-plugin"},
	// What is left of an operator in another namespace, and manifests that have taken over its labels.
	labels.App: {
		"nvidia-device-plugin-daemonset", "nvidia-device-plugin", "gpu-feature-discovery", "nvidia-dcgm-exporter",
		"dcgm-exporter", "nvidia-dcgm", "nvidia-dra-driver-kubelet-plugin",
	},
}

// Selectors returns label selectors that select the pods of neighbours, and none of this operator's operands.
func Selectors() ([]k8slabels.Selector, error) {
	selectors := make([]k8slabels.Selector, 0, len(candidates))
	for key, values := range candidates {
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values},
				{Key: labels.Operand, Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		})
		if err != nil {
			return nil, err
		}
		selectors = append(selectors, selector)
	}
	slices.SortFunc(selectors, func(a, b k8slabels.Selector) int { return cmp.Compare(a.String(), b.String()) })
	return selectors, nil
}

// Of returns the neighbour whose pod this is. It returns false for other pods, for those that have ended or are about
// to, and for those that belong to an operator in this namespace.
func Of(pod *corev1.Pod, namespace string) (Neighbour, bool) {
	switch {
	case pod.Labels[labels.Operand] != "",
		pod.Namespace == namespace && pod.Labels[labels.ManagedBy] == labels.ManagedByValue,
		pod.Spec.NodeName == "", pod.DeletionTimestamp != nil,
		pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return Neighbour{}, false
	}
	for i := range pod.Spec.Containers {
		if kind, known := kindOf(&pod.Spec.Containers[i]); known {
			return Neighbour{Kind: kind, Workload: workloadOf(pod)}, true
		}
	}
	return Neighbour{}, false
}

// programs are the neighbours by the base name of their program, of their container, or of their image. Mirrors rename
// registries and repositories.
var programs = map[string]Kind{
	"nvidia-device-plugin":     DevicePlugin,
	"nvidia-gpu-device-plugin": DevicePlugin,
	"gpu-feature-discovery":    FeatureDiscovery,
	"dcgm-exporter":            Exporter,
	"nv-hostengine":            HostEngine,
	draProgram:                 DRADriver,
}

// draProgram is the DRA driver's program for GPUs, which a shell starts. Its image has another one, without GPUs.
const draProgram = "gpu-kubelet-plugin"

// images are the neighbours whose image has another name than their program.
var images = map[string]Kind{"k8s-device-plugin": DevicePlugin, "dcgm": HostEngine}

// shells start a program that the command does not name.
var shells = []string{"sh", "bash", "ash", "tini", "dumb-init"}

// kindOf returns what a container is: by its command, or else by its name and its image. One image has the device
// plugin, GPU Feature Discovery and the daemon of MPS, so that the image alone says nothing if there is a command.
func kindOf(container *corev1.Container) (Kind, bool) {
	if len(container.Command) > 0 {
		program := path.Base(container.Command[0])
		if kind, known := programs[program]; known || !slices.Contains(shells, program) {
			return kind, known
		}
		script := strings.Join(slices.Concat(container.Command[1:], container.Args), " ")
		if strings.Contains(script, draProgram) {
			return DRADriver, true
		}
	}
	name, _ := strings.CutSuffix(container.Name, "-ctr")
	if kind, known := programs[name]; known {
		return kind, true
	}
	base := image.BaseName(container.Image)
	if kind, known := programs[base]; known {
		return kind, true
	}
	kind, known := images[base]
	return kind, known
}

// maxWorkload is the longest workload in bytes. Owner references of unknown kinds have names without a limit.
const maxWorkload = 400

func workloadOf(pod *corev1.Pod) string {
	kind, name := "Pod", pod.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		kind, name = owner.Kind, owner.Name
	}
	return text.Truncate(kind+" "+pod.Namespace+"/"+name, maxWorkload)
}

// OnNodes has the neighbours of each node that has any, sorted and without duplicates.
type OnNodes map[string][]Neighbour

// Add adds the neighbour whose pod this is, if it is one.
func (o OnNodes) Add(pod *corev1.Pod, namespace string) {
	found, is := Of(pod, namespace)
	if !is {
		return
	}
	// Strings of the pod would keep all that was decoded with it.
	o.add(strings.Clone(pod.Spec.NodeName), found)
}

// AddMissing adds to the nodes the neighbours of this kind that others has and they have not.
func (o OnNodes) AddMissing(kind Kind, others OnNodes) {
	for node, neighbours := range others {
		for _, other := range neighbours {
			if other.Kind == kind {
				o.add(node, other)
			}
		}
	}
}

// add adds a neighbour, unless the node has it already.
func (o OnNodes) add(node string, found Neighbour) {
	at, exists := slices.BinarySearchFunc(o[node], found, compare)
	if !exists {
		o[node] = slices.Insert(o[node], at, found)
	}
}

// compare orders device plugins first, which do most harm.
func compare(a, b Neighbour) int {
	rank := func(n Neighbour) int {
		return slices.Index([]Kind{DevicePlugin, DRADriver, FeatureDiscovery, Exporter, HostEngine}, n.Kind)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Workload, b.Workload))
}
