package observe

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// maxRefused is the number of ended pods of one node that are read.
const maxRefused = 500

// PodPhaseField is the field selector for the phase of pods.
const PodPhaseField = "status.phase"

// RefusedPod is a pod with GPUs that the kubelet has refused to admit. It has ended for good.
type RefusedPod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Owned: a controller owns the pod, and has replaced it or will.
	Owned bool
}

// String returns namespace/name.
func (p RefusedPod) String() string { return p.Namespace + "/" + p.Name }

// RefusedPods returns the pods with GPUs that the kubelet of the node has refused after the given time, sorted. It
// lists the failed pods of the node, so live must read from the API server: caches have only the operands' pods. Pods
// in the operator's namespace do not count: the DaemonSet controller replaces those of operands.
func RefusedPods(ctx context.Context, live client.Reader, node, namespace string, after time.Time) (
	[]RefusedPod, error,
) {
	pods := &corev1.PodList{}
	err := live.List(ctx, pods, client.Limit(maxRefused),
		client.MatchingFields{PodNodeField: node, PodPhaseField: string(corev1.PodFailed)})
	if err != nil {
		return nil, fmt.Errorf("listing the failed pods of node %s: %w", node, err)
	}
	var found []RefusedPod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Namespace != namespace && pod.DeletionTimestamp == nil && isRefused(pod) && refusedAt(pod).After(after) {
			found = append(found, RefusedPod{
				Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				Owned: metav1.GetControllerOfNoCopy(pod) != nil,
			})
		}
	}
	slices.SortFunc(found, func(a, b RefusedPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return found, nil
}

// isRefused reports whether the kubelet has refused a pod that requests GPUs.
func isRefused(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == readiness.RefusedByKubelet &&
		gpuuse.OfRequests(pod) == gpuuse.Held
}

// refusedAt returns when the reason of the pod's end was written, in whole seconds; the zero time if that is unknown.
// The status of a refused pod has no time of its own.
func refusedAt(pod *corev1.Pod) time.Time {
	var at time.Time
	for i := range pod.ManagedFields {
		entry := &pod.ManagedFields[i]
		if entry.Subresource != "status" || entry.Time == nil || entry.FieldsV1 == nil ||
			!bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:reason"`)) {
			continue
		}
		if entry.Time.After(at) {
			at = entry.Time.Time
		}
	}
	return at
}
