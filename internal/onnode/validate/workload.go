package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	// DefaultWorkloadTimeout bounds a workload pod from its creation to its end, pulls included.
	DefaultWorkloadTimeout = 4 * time.Minute
	// DefaultFullAfter is how long a node must have no GPU left to be taken as full. Just after the
	// kubelet's report the scheduler may not have heard of the GPUs yet, and an earlier workload pod
	// may still be ending.
	DefaultFullAfter = 10 * time.Second
	// cleanupTimeout bounds the deletion of a pod that is given up, which the kubelet's SIGTERM
	// leaves little time for. The owner reference is what deletes it otherwise.
	cleanupTimeout = time.Second
)

// The names of the workload pod are those of NVIDIA's validator, so that what finds one finds the other.
const (
	workloadApp            = "nvidia-device-plugin-validator"
	workloadContainer      = "plugin-validation"
	workloadServiceAccount = "nvidia-operator-validator"
)

// Workload runs a pod that asks for one GPU and computes on it: the whole way of a user's pod, from
// the scheduler through the device plugin and the container runtime to the driver.
//
// It never costs anybody a GPU. The scheduler places the pod (the kubelet would reject one that is
// bound to a full node, and so might a user's pod be that was promised the same GPU). The pod's
// priority class must be below all others and forbid preemption, so that a pod of a user takes its GPU
// back at any time. And a node without a free GPU passes: GPUs that are in use can be allocated.
//
// A pod that has succeeded is deleted, as nothing reads it; one that has failed stays until the next
// attempt, for its log. Either is deleted with its owner. An attempt first deletes the pods of earlier
// ones on this node.
type Workload struct {
	Client *nodeapi.Client
	// Node is where to compute, Namespace where the pod is made.
	Node, Namespace string
	// Owner is what the pod is deleted with: the pod of the validator, in the same namespace.
	Owner nodeapi.OwnerReference
	// Image has labels.CUDABinary.
	Image string
	// PullPolicy, RuntimeClass and PullSecrets of the pod; the cluster's defaults where they are empty.
	PullPolicy, RuntimeClass string
	PullSecrets              []string
	// PriorityClass of the pod.
	PriorityClass string
	// Timeout and FullAfter: see their defaults.
	Timeout, FullAfter time.Duration
	// Log gets a line with the result.
	Log *slog.Logger
}

// Run computes on one GPU of the node, offered under this name of a resource. It returns nil if that
// succeeded or if no GPU is free. Its errors name no pod, so that the same cause gives the same words
// though each attempt has a pod of its own.
func (w Workload) Run(ctx context.Context, resource string) error {
	if err := w.removeEarlier(ctx); err != nil {
		return err
	}
	pod, err := w.Client.CreatePod(ctx, w.Namespace, w.pod(resource))
	if err != nil {
		return fmt.Errorf("the workload pod cannot be created in namespace %s; check that the priority class %s exists, and the quotas and admission policies of the namespace: %w",
			w.Namespace, w.PriorityClass, err)
	}
	result, err := w.follow(ctx, pod, resource)
	if result != podFailed {
		if cleanupErr := w.remove(ctx, pod); cleanupErr != nil {
			w.Log.Warn("the workload pod is left to the garbage collector", "pod", pod.Metadata.Name, "error", cleanupErr)
		}
	}
	return err
}

// pod is the workload pod.
func (w Workload) pod(resource string) nodeapi.Pod {
	var secrets []nodeapi.LocalObjectReference
	for _, name := range w.PullSecrets {
		secrets = append(secrets, nodeapi.LocalObjectReference{Name: name})
	}
	return nodeapi.Pod{
		Metadata: nodeapi.PodMetadata{
			GenerateName:    workloadApp + "-",
			Labels:          map[string]string{labels.App: workloadApp},
			OwnerReferences: []nodeapi.OwnerReference{w.Owner},
		},
		Spec: nodeapi.PodSpec{
			// A second try in the same pod would hold the GPU for as long as the fault lasts.
			RestartPolicy:                 "Never",
			TerminationGracePeriodSeconds: 1, // It has nothing to save.
			ServiceAccountName:            workloadServiceAccount,
			RuntimeClassName:              w.RuntimeClass,
			PriorityClassName:             w.PriorityClass,
			Affinity:                      nodeapi.OnNode(w.Node),
			Tolerations:                   []nodeapi.Toleration{{Operator: "Exists"}},
			ImagePullSecrets:              secrets,
			Containers: []nodeapi.Container{{
				Name:            workloadContainer,
				Image:           w.Image,
				ImagePullPolicy: w.PullPolicy,
				Command:         []string{labels.CUDABinary},
				Resources:       nodeapi.ContainerResources{Limits: map[string]string{resource: "1"}},
				SecurityContext: &nodeapi.SecurityContext{
					ReadOnlyRootFilesystem: true,
					Capabilities:           nodeapi.Capabilities{Drop: []string{"ALL"}},
					SeccompProfile:         nodeapi.SeccompProfile{Type: "RuntimeDefault"},
				},
				// The program says why it fails in the last line of its log.
				TerminationMessagePolicy: "FallbackToLogsOnError",
			}},
		},
	}
}

// removeEarlier deletes the workload pods that are bound to this node, and those that wait for it.
func (w Workload) removeEarlier(ctx context.Context) error {
	for _, node := range []string{w.Node, ""} {
		pods, err := w.Client.Pods(ctx, w.Namespace, labels.App, workloadApp, node)
		if err != nil {
			return fmt.Errorf("the workload pods of earlier attempts are not known: %w", err)
		}
		for _, pod := range pods {
			if !waitsFor(pod, w.Node) && pod.Spec.NodeName != w.Node {
				continue
			}
			if err := w.Client.DeletePod(ctx, w.Namespace, pod.Metadata.Name); err != nil {
				return fmt.Errorf("a workload pod of an earlier attempt cannot be deleted: %w", err)
			}
		}
	}
	return nil
}

// waitsFor tells whether the pod was made for the named node.
func waitsFor(pod nodeapi.Pod, node string) bool {
	if pod.Spec.Affinity == nil {
		return false
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.Required.Terms {
		for _, field := range term.MatchFields {
			if len(field.Values) == 1 && field.Values[0] == node {
				return true
			}
		}
	}
	return false
}

// remove deletes the pod, also where ctx has ended.
func (w Workload) remove(ctx context.Context, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return w.Client.DeletePod(bounded, w.Namespace, pod.Metadata.Name)
}

// follow waits for the verdict on the pod.
func (w Workload) follow(ctx context.Context, pod nodeapi.Pod, resource string) (verdict, error) {
	bounded, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	states, ended := make(chan nodeapi.Pod), make(chan error, 1)
	go func() {
		ended <- w.Client.AwaitPod(bounded, w.Namespace, pod, func(now nodeapi.Pod) bool {
			select {
			case states <- now:
			case <-bounded.Done():
			}
			return judge(now, resource).final()
		})
	}()
	var full <-chan time.Time
	for {
		select {
		case pod = <-states:
			switch result := judge(pod, resource); {
			case result.final():
				return result, w.conclude(result, pod, resource)
			case result != podUnplaced:
				full = nil
			case full == nil:
				full = time.After(w.FullAfter)
			}
		case <-full:
			return podPreempted, w.conclude(podPreempted, pod, resource)
		case err := <-ended:
			return podPending, w.unfinished(ctx, bounded, pod, err)
		}
	}
}

// unfinished says why there is no verdict.
func (w Workload) unfinished(ctx, bounded context.Context, pod nodeapi.Pod, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the workload pod was interrupted: %w", context.Cause(ctx))
	case bounded.Err() != nil:
		return fmt.Errorf("the workload pod on node %s has not ended after %s: %s", w.Node, w.Timeout, pendingBecause(pod))
	default:
		return fmt.Errorf("the workload pod on node %s cannot be followed: %w", w.Node, stripName(err, pod))
	}
}

// stripName takes the pod's name, which differs with each attempt, out of the words of err.
func stripName(err error, pod nodeapi.Pod) error {
	return errors.New(strings.ReplaceAll(err.Error(), pod.Metadata.Name, workloadApp+"-*"))
}

// conclude logs a verdict that passes, and puts one that does not into words.
func (w Workload) conclude(result verdict, pod nodeapi.Pod, resource string) error {
	switch result {
	case podSucceeded:
		w.Log.Info("a pod got a GPU and computed on it", "resource", resource)
		return nil
	case podPreempted:
		w.Log.Info("all GPUs are in use, which proves that they can be allocated; no workload was run", "node", w.Node, "resource", resource)
		return nil
	case podFailed:
		return fmt.Errorf("the workload pod on node %s failed: %s (its log is that of the pod with the label %s=%s)",
			w.Node, failedBecause(pod), labels.App, workloadApp)
	default:
		return fmt.Errorf("the workload pod on node %s was deleted before it ended; another attempt follows", w.Node)
	}
}

// failedBecause is what the container said last, else what the kubelet says of the pod.
func failedBecause(pod nodeapi.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil {
			// The last line, since the lines before it are about the GPUs that work.
			message := strings.TrimSpace(ended.Message)
			if last := message[strings.LastIndex(message, "\n")+1:]; last != "" {
				return last
			}
			return fmt.Sprintf("its container ended with exit code %d (%s)", ended.ExitCode, cmp.Or(ended.Reason, "no reason given"))
		}
	}
	return reasonAndMessage(pod.Status.Reason, pod.Status.Message)
}

// pendingBecause says what the pod waits for.
func pendingBecause(pod nodeapi.Pod) string {
	if scheduled, ok := pod.Status.Condition("PodScheduled"); ok && scheduled.Status != "True" {
		return "it is not scheduled: " + reasonAndMessage(scheduled.Reason, scheduled.Message)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil {
			return "its container waits: " + stripName(errors.New(reasonAndMessage(waiting.Reason, waiting.Message)), pod).Error()
		}
	}
	return "it is " + cmp.Or(pod.Status.Phase, "Pending") + "; see the kubelet's log and the kernel log of the node"
}

func reasonAndMessage(reason, message string) string {
	return strings.TrimSuffix(cmp.Or(reason, "no reason given")+": "+message, ": ")
}
