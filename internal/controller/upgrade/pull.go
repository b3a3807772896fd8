package upgrade

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// pull creates the pod that pulls the images of a node's new driver. If it exists already, the cache shows it soon.
// Another one with its name fails the call: no event says when it ends.
func (s *scope) pull(ctx context.Context, of *observed, step *upgrade.Step) {
	if of.daemonSet == nil {
		return
	}
	pod := pullPod(s.Namespace, step.Node, of.daemonSet)
	created := s.call(ctx, step.Node, "creating pod "+pod.Name, func(ctx context.Context) error {
		err := s.Client.Create(ctx, pod)
		switch {
		case apierrors.IsAlreadyExists(err):
			return s.checkPull(ctx, pod)
		case err == nil && !isPull(pod, step.Node):
			return s.discardPull(ctx, pod)
		}
		return err
	})
	if created {
		log.FromContext(ctx).Info("Pulling the images of a driver", "node", step.Node, "pod", pod.Name)
	}
}

// checkPull fails if the pod with the name of the one that pulls images is another one.
func (s *scope) checkPull(ctx context.Context, wanted *corev1.Pod) error {
	pods := &corev1.PodList{}
	// The right to list pods is there already, for those of users.
	err := s.Live.List(ctx, pods, client.InNamespace(wanted.Namespace),
		client.MatchingFields{"metadata.name": wanted.Name})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if !isPull(&pods.Items[i], wanted.Spec.NodeName) {
			return errors.New("it exists and is not the operator's: delete it")
		}
	}
	return nil
}

// isPull reports whether the pod pulls images on the node, and has the labels without which no cache shows it.
func isPull(pod *corev1.Pod, node string) bool {
	return pod.Labels[labels.ManagedBy] == labels.ManagedByValue && pod.Labels[labels.DriverPull] != "" &&
		pod.Spec.NodeName == node
}

// discardPull deletes a pod that was just created, but not as it was given, and returns why.
func (s *scope) discardPull(ctx context.Context, pod *corev1.Pod) error {
	err := s.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting it, as its labels were changed: %w", err)
	}
	return errors.New("its labels were changed when it was created: except it from the webhook or policy that does so")
}

// PullPodName returns the name of the pod that pulls the images of a driver on the node.
func PullPodName(node string) string { return "gpu-operator-driver-pull-" + digest.Of(node) }

// pullPod returns a pod on the node with the images of the DaemonSet's pods and their pull secrets. Each container runs
// a command that ends immediately; an image without it is pulled as well. The pod runs beside everything else: it
// tolerates all taints, is not scheduled, requests nothing and may do nothing.
func pullPod(namespace, node string, ds *appsv1.DaemonSet) *corev1.Pod {
	template := &ds.Spec.Template.Spec
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: PullPodName(node),
			Labels: map[string]string{
				labels.ManagedBy: labels.ManagedByValue, labels.DriverPull: labels.True,
			},
			Annotations:     map[string]string{labels.TemplateDigest: ds.Annotations[labels.TemplateDigest]},
			OwnerReferences: ownerOf(ds),
		},
		Spec: corev1.PodSpec{
			NodeName:      node,
			RestartPolicy: corev1.RestartPolicyNever,
			// The account may have pull secrets of its own.
			ServiceAccountName:            template.ServiceAccountName,
			AutomountServiceAccountToken:  new(false),
			ImagePullSecrets:              template.ImagePullSecrets,
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(nobody), RunAsGroup: new(nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: pullContainers(template),
		},
	}
}

// nobody is the user and the group that own no files.
const nobody int64 = 65534

// pullContainers returns one container for each image of the template.
func pullContainers(template *corev1.PodSpec) []corev1.Container {
	var containers []corev1.Container
	seen := map[string]bool{}
	for _, from := range [][]corev1.Container{template.InitContainers, template.Containers} {
		for i := range from {
			if seen[from[i].Image] {
				continue
			}
			seen[from[i].Image] = true
			containers = append(containers, corev1.Container{
				Name: from[i].Name, Image: from[i].Image, ImagePullPolicy: from[i].ImagePullPolicy,
				Command: []string{"true"},
				// Where the default runtime of the node is NVIDIA's, it would inject the GPUs.
				Env: []corev1.EnvVar{{Name: labels.VisibleDevices, Value: labels.NoVisibleDevices}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			})
		}
	}
	return containers
}
