package cachefilter

import (
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// TrimNode is TrimmedNode as the transform of a cache. It returns other objects unchanged.
func TrimNode(object any) (any, error) {
	if node, isNode := object.(*corev1.Node); isNode {
		return TrimmedNode(node), nil
	}
	return object, nil
}

// TrimmedNode returns a Node with only the fields that the operator reads. Most of a Node's size is images and managed
// fields.
func TrimmedNode(node *corev1.Node) *corev1.Node { return trimmedNode(node, nil) }

// trimmedNode is TrimmedNode for a node with these labels at last, whose map is used if they are equal.
func trimmedNode(node *corev1.Node, known map[string]string) *corev1.Node {
	capacity, allocatable := trimResources(node.Status.Capacity), trimResources(node.Status.Allocatable)
	if equality.Semantic.DeepEqual(capacity, allocatable) {
		capacity = allocatable
	}
	trimmed := &corev1.Node{
		ObjectMeta: trimMeta(node.ObjectMeta, known,
			labels.DiscoveryLostSince, labels.DiscoveryMissingSince, labels.DiscoveredLabels, labels.StartupTaints,
			labels.UpgradeEnabled, labels.UpgradeRecord, labels.UpgradeRequested, labels.UpgradeInitialCordon,
			labels.MIGConfigWritten, labels.GPUsOnBus, labels.GPUHealth, labels.PluginConfigRead, labels.ReadyBoot,
			labels.ReportRecord,
			labels.HealthRecord, labels.HealthConsent, labels.MIGDrain),
		// The taints are unchanged, because a write replaces the whole list.
		Spec: corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{
				BootID:                  node.Status.NodeInfo.BootID,
				Architecture:            node.Status.NodeInfo.Architecture,
				ContainerRuntimeVersion: node.Status.NodeInfo.ContainerRuntimeVersion,
				KubeletVersion:          node.Status.NodeInfo.KubeletVersion,
				OSImage:                 node.Status.NodeInfo.OSImage,
			},
			Capacity:    capacity,
			Allocatable: allocatable,
		},
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady || slices.Contains(labels.Conditions(), string(condition.Type)) {
			condition.LastHeartbeatTime = metav1.Time{}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, condition)
		}
	}
	return trimmed
}

func trimResources(resources corev1.ResourceList) corev1.ResourceList {
	var trimmed corev1.ResourceList
	for name, quantity := range resources {
		if strings.HasPrefix(string(name), labels.VendorPrefix) {
			if trimmed == nil {
				trimmed = corev1.ResourceList{}
			}
			trimmed[name] = quantity
		}
	}
	return trimmed
}

// TrimCRD keeps the identity of a CustomResourceDefinition and whether it is being deleted. Most of the size of
// its metadata is annotations.
func TrimCRD(object any) (any, error) {
	crd, isMetadata := object.(*metav1.PartialObjectMetadata)
	if !isMetadata {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: crd.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: crd.Name, UID: crd.UID, ResourceVersion: crd.ResourceVersion,
		DeletionTimestamp: crd.DeletionTimestamp,
	}}, nil
}

// Pod is the transform of a cache of pods. It keeps only what the operator reads, and shares what many pods have in
// common, because there are several pods for each node.
func (t *PodTrimmer) Pod(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			Namespace:         unique.Make(pod.Namespace).Value(),
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            podLabels(t, pod),
			Annotations:       pick(t, pod.Annotations, labels.TemplateDigest),
			OwnerReferences:   trimOwners(t, pod),
		},
		Status: corev1.PodStatus{
			Phase:     corev1.PodPhase(unique.Make(string(pod.Status.Phase)).Value()),
			Reason:    pod.Status.Reason,
			Message:   pod.Status.Message,
			StartTime: pod.Status.StartTime,
		},
	}
	// For a pod that is not scheduled yet, the node that the DaemonSet controller has created it for.
	trimmed.Spec.NodeName = unique.Make(observe.PodNode(pod)).Value()
	if class := pod.Spec.RuntimeClassName; class != nil {
		trimmed.Spec.RuntimeClassName = share(t, *class, func() *string { return new(*class) })
	}
	stable := readiness.NeverTerminated(pod)
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; affectsVerdict(condition.Type, stable) {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, corev1.PodCondition{
				Type:   corev1.PodConditionType(unique.Make(string(condition.Type)).Value()),
				Status: corev1.ConditionStatus(unique.Make(string(condition.Status)).Value()),
				Reason: condition.Reason, Message: condition.Message, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	if stable {
		trimmed.Status.InitContainerStatuses = readiness.Validations(pod)
		return trimmed, nil
	}
	trimmed.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
	for i := range trimmed.Status.InitContainerStatuses {
		if readiness.RunsBeside(&pod.Status.InitContainerStatuses[i]) {
			trimmed.Status.InitContainerStatuses[i].Started = &sidecarStarted
		}
	}
	trimmed.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	for i := range pod.Spec.InitContainers {
		if container := &pod.Spec.InitContainers[i]; container.Name == labels.WaitContainer {
			trimmed.Spec.InitContainers = []corev1.Container{{Name: container.Name, Args: container.Args}}
		}
	}
	return trimmed, nil
}

// affectsVerdict reports whether the verdict on a pod depends on the condition. That of a stable pod depends on Ready
// only.
func affectsVerdict(condition corev1.PodConditionType, stable bool) bool {
	return condition == corev1.PodReady ||
		!stable && (condition == corev1.PodScheduled || condition == corev1.PodReadyToStartContainers)
}

// trimOwners keeps the controller of the pod.
func trimOwners(t *PodTrimmer, pod *corev1.Pod) []metav1.OwnerReference {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil
	}
	return share(t, controller.UID, func() []metav1.OwnerReference {
		return []metav1.OwnerReference{{
			APIVersion: controller.APIVersion, Kind: controller.Kind, Name: controller.Name, UID: controller.UID,
			Controller: new(true),
		}}
	})
}

// podLabels keeps the label of operands' pods, or that of pods which pull the images of a driver.
func podLabels(t *PodTrimmer, pod *corev1.Pod) map[string]string {
	if of := pick(t, pod.Labels, labels.Operand); of != nil {
		return of
	}
	return pick(t, pod.Labels, labels.DriverPull)
}

// pick returns a shared map with this entry of a map, nil if it has no such entry.
func pick(t *PodTrimmer, from map[string]string, key string) map[string]string {
	value, exists := from[key]
	if !exists {
		return nil
	}
	return share(t, [2]string{key, value}, func() map[string]string { return map[string]string{key: value} })
}

func trimMeta(meta metav1.ObjectMeta, known map[string]string, annotations ...string) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp,
		DeletionTimestamp: meta.DeletionTimestamp,
		Labels:            trimLabels(meta.Labels, known),
	}
	for _, annotation := range annotations {
		value, exists := meta.Annotations[annotation]
		if !exists {
			continue
		}
		if trimmed.Annotations == nil {
			trimmed.Annotations = map[string]string{}
		}
		trimmed.Annotations[annotation] = value
	}
	return trimmed
}

// trimLabels returns the known labels if they are equal, else a copy whose texts are shared with other nodes.
func trimLabels(from, known map[string]string) map[string]string {
	if known != nil && maps.Equal(from, known) {
		return known
	}
	copied := make(map[string]string, len(from))
	for key, value := range from {
		copied[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	return copied
}

// sidecarStarted is what all sidecars that have started share.
var sidecarStarted = true

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, 0, len(statuses))
	for i := range statuses {
		status := &statuses[i]
		trimmed = append(trimmed, corev1.ContainerStatus{
			Name:                 unique.Make(status.Name).Value(),
			Image:                unique.Make(status.Image).Value(),
			Ready:                status.Ready,
			State:                trimState(status.State),
			LastTerminationState: trimState(status.LastTerminationState),
		})
	}
	return trimmed
}

// trimState drops what no verdict depends on, such as container IDs.
func trimState(state corev1.ContainerState) corev1.ContainerState {
	trimmed := corev1.ContainerState{Waiting: state.Waiting}
	if state.Running != nil {
		trimmed.Running = &corev1.ContainerStateRunning{StartedAt: state.Running.StartedAt}
	}
	if state.Terminated != nil {
		trimmed.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: state.Terminated.ExitCode, Reason: state.Terminated.Reason,
			Message:   readiness.LastLine(state.Terminated.Message),
			StartedAt: state.Terminated.StartedAt, FinishedAt: state.Terminated.FinishedAt,
		}
	}
	return trimmed
}
