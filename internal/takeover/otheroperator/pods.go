package otheroperator

import (
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

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
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

// pageSize is the number of pods that are read at a time: each may have 1.5 MB, the limit of the API server.
const pageSize = 25

// running is a pod that runs NVIDIA's operator, or pretends to.
type running struct {
	uid                               types.UID
	namespace, pod, deployment, image string
}

// list returns a pod of the namespace that runs NVIDIA's operator, nil for none; an empty namespace is all of them.
// version is the resource version of the list.
func (w *Watcher) list(ctx context.Context, namespace string) (found *running, version string, err error) {
	candidates, version, err := w.candidates(ctx, namespace)
	if err != nil {
		return nil, "", fmt.Errorf("listing pods to find NVIDIA's operator: %w", err)
	}
	found, err = w.choose(ctx, candidates)
	return found, version, err
}

// candidates returns the pods of the namespace that look like those of NVIDIA's operator, one for each account.
func (w *Watcher) candidates(ctx context.Context, namespace string) (map[account]*running, string, error) {
	candidates := map[account]*running{}
	options := &client.ListOptions{Namespace: namespace, Limit: pageSize}
	selector().ApplyToList(options)
	for {
		pods, err := w.page(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			of := accountOf(pod)
			if candidate := w.candidate(pod); candidate != nil && candidates[of] == nil {
				candidates[of] = candidate
			}
		}
		if pods.Continue == "" {
			return candidates, pods.ResourceVersion, nil
		}
		options.Continue = pods.Continue
	}
}

// page reads a page of pods. Each has the whole deadline, so that many large pods cannot make all lists fail.
func (w *Watcher) page(ctx context.Context, options *client.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Timing.Deadline)
	defer cancel()
	pods := &corev1.PodList{}
	return pods, w.Live.List(ctx, pods, options, client.UnsafeDisableDeepCopy)
}

// candidate returns what the pod looks like if that is NVIDIA's operator; otherwise nil. Strings of the pod would keep
// all that was decoded with it.
func (w *Watcher) candidate(pod *corev1.Pod) *running {
	if !mayWork(pod, w.Clock.Now()) {
		return nil
	}
	image, found := w.imageOf(pod)
	if !found {
		return nil
	}
	return &running{
		uid: types.UID(strings.Clone(string(pod.UID))), namespace: strings.Clone(pod.Namespace),
		pod: strings.Clone(pod.Name), deployment: strings.Clone(deploymentOf(pod)), image: strings.Clone(image),
	}
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
