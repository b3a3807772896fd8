package otheroperator

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// name is the base name of the image of NVIDIA's operator, and of its command.
const name = "gpu-operator"

// podHashLabel is set by the Deployment controller; the value is the suffix of the ReplicaSet's name.
const podHashLabel = "pod-template-hash"

// selector selects the pods of NVIDIA's operator, installed with Helm or the Operator Lifecycle Manager, and those of
// this one.
func selector() client.MatchingLabels {
	return client.MatchingLabels{labels.App: name, labels.Component: name}
}

// running is a pod that runs NVIDIA's operator.
type running struct {
	uid                               types.UID
	namespace, pod, deployment, image string
}

// list returns a pod that runs NVIDIA's operator, the first by namespace and name; nil for none. version is the
// resource version of the list.
func (w *Watcher) list(ctx context.Context) (found *running, version string, err error) {
	pods := &corev1.PodList{}
	if err := w.Live.List(ctx, pods, selector(), client.UnsafeDisableDeepCopy); err != nil {
		return nil, "", fmt.Errorf("listing pods to find NVIDIA's operator: %w", err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for i := range pods.Items {
		if pod := &pods.Items[i]; mayWork(pod, w.Clock.Now()) {
			if image, found := w.imageOf(pod); found {
				return &running{
					uid: pod.UID, namespace: pod.Namespace, pod: pod.Name, deployment: deploymentOf(pod), image: image,
				}, pods.ResourceVersion, nil
			}
		}
	}
	return nil, pods.ResourceVersion, nil
}

// mayWork reports whether containers of the pod run or will run. Those of a deleted pod are killed when its grace
// period is over, and only the object may stay, as on a node that is lost.
func mayWork(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return pod.DeletionTimestamp == nil || now.Before(pod.DeletionTimestamp.Time)
}

// imageOf returns the image of the container that runs NVIDIA's operator, if there is one. Mirrors rename registries
// and repositories, and the Operator Lifecycle Manager uses digests, so that only the base name counts.
func (w *Watcher) imageOf(pod *corev1.Pod) (string, bool) {
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == w.OwnVariable }) {
			continue
		}
		if image.BaseName(container.Image) == name || len(container.Command) > 0 && path.Base(container.Command[0]) == name {
			return container.Image, true
		}
	}
	return "", false
}

// deploymentOf returns the name of the Deployment of the pod; empty if it has none.
func deploymentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	hash := pod.Labels[podHashLabel]
	if owner == nil || owner.Kind != "ReplicaSet" || hash == "" {
		return ""
	}
	deployment, found := strings.CutSuffix(owner.Name, "-"+hash)
	if !found {
		return ""
	}
	return deployment
}

// message returns what runs, and the remedy.
func (r *running) message() string {
	what, stop := "Pod "+r.pod, fmt.Sprintf("kubectl -n %s delete pod %s", r.namespace, r.pod)
	if r.deployment != "" {
		what = "Deployment " + r.deployment
		stop = fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", r.namespace, r.deployment)
	}
	return fmt.Sprintf("%s in namespace %s runs NVIDIA's operator (image %s): this operator changes nothing until that "+
		"is gone. Migrate with kubectl gpu migrate, as docs/migration.md describes, or stop it with %s; --take-over does "+
		"not wait for that",
		what, r.namespace, r.image, stop)
}
