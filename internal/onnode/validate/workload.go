package validate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	// DefaultWorkloadTimeout bounds a workload pod from its creation to its end, pulls included.
	DefaultWorkloadTimeout = 4 * time.Minute
	// DefaultFullAfter is how long a node must have no GPU left to be taken as full. Just after the
	// kubelet's report the scheduler may not have heard of the GPUs yet.
	DefaultFullAfter = 10 * time.Second
	// DefaultEndTimeout bounds the end of a pod that is deleted.
	DefaultEndTimeout = 20 * time.Second
	// WorkloadAttemptMargin is what an attempt needs beside the time of its pod: for the end of that of
	// an earlier attempt, for its own, and for the requests.
	WorkloadAttemptMargin = 2*DefaultEndTimeout + 20*time.Second
	// cleanupTimeout bounds the deletion of a pod that is given up, which the kubelet's SIGTERM
	// leaves little time for. The owner reference is what deletes it otherwise.
	cleanupTimeout = time.Second
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
// attempt, for its log. Either is deleted with its owner.
//
// A node has one workload pod at a time, since all have the same name. So a pod that hangs with its GPU
// cannot be what makes the node look full: an attempt first deletes the earlier pod, and fails where
// that one does not end; and a node is not full before the attempt's own pod is gone.
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
	// Timeout, FullAfter and EndTimeout: see their defaults.
	Timeout, FullAfter, EndTimeout time.Duration
	// Log gets a line with the result.
	Log *slog.Logger
}

// Run computes on one GPU of the node, offered under this name of a resource. It returns nil if that
// succeeded or if no GPU is free. The same cause gives the same words in each attempt.
func (w Workload) Run(ctx context.Context, resource string) error {
	pod, err := w.create(ctx, resource)
	if err != nil {
		return err
	}
	result, err := w.follow(ctx, pod, resource)
	if result == podPreempted {
		if err = w.end(ctx, "the workload pod", pod); err == nil {
			w.Log.Info("all GPUs are in use, which proves that they can be allocated; no workload was run", "node", w.Node,
				"resource", resource)
			return nil
		}
	}
	if result != podFailed {
		if cleanupErr := w.remove(ctx, pod); cleanupErr != nil {
			w.Log.Warn("the workload pod is left to the garbage collector", "pod", pod.Metadata.Name, "error", cleanupErr)
		}
	}
	return err
}

// create makes the pod, in the place of that of an earlier attempt.
func (w Workload) create(ctx context.Context, resource string) (nodeapi.Pod, error) {
	wanted := w.pod(resource)
	// A call that is cut off may have made a pod, and who does not know of it does not delete it.
	lasting, cancel := outlasting(ctx, cleanupTimeout)
	defer cancel()
	pod, err := w.Client.CreatePod(lasting, w.Namespace, wanted)
	if nodeapi.IsAlreadyExists(err) {
		if err := w.removeEarlier(ctx, wanted.Metadata.Name); err != nil {
			return nodeapi.Pod{}, err
		}
		pod, err = w.Client.CreatePod(lasting, w.Namespace, wanted)
	}
	if err != nil {
		return nodeapi.Pod{}, fmt.Errorf(
			"the workload pod cannot be created in namespace %s; check that the priority class %s exists, and the quotas and "+
				"admission policies of the namespace: %w",
			w.Namespace, w.PriorityClass, err)
	}
	return pod, nil
}

// outlasting ends so long after ctx does.
func outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return lasting, func() {
		stop()
		cancel()
	}
}

// removeEarlier returns once the pod of an earlier attempt is gone.
func (w Workload) removeEarlier(ctx context.Context, name string) error {
	earlier, err := w.Client.Pod(ctx, w.Namespace, name)
	switch {
	case nodeapi.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("the workload pod of an earlier attempt is not known: %w", err)
	case earlier.Metadata.Labels[labels.App] != workloadApp:
		return fmt.Errorf("the pod %s/%s is not a workload pod, but has the name of that of node %s; delete it", w.Namespace,
			name, w.Node)
	}
	return w.end(ctx, "the earlier workload pod", earlier)
}

// end deletes the pod, which the error calls what, and returns once it is gone. Until then it may hold
// a GPU: a process that hangs in the driver cannot be killed.
func (w Workload) end(ctx context.Context, what string, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(ctx, w.EndTimeout)
	defer cancel()
	err := w.Client.DeletePod(bounded, w.Namespace, pod)
	if err == nil {
		err = w.Client.AwaitPodGone(bounded, w.Namespace, pod)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return interrupted(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf(
			"%s on node %s has not ended %s after its deletion; see the kernel log of the node for Xid errors of its GPU, "+
				"and the kubelet's log for the pod %s",
			what, w.Node, w.EndTimeout, pod.Metadata.Name)
	default:
		return fmt.Errorf("%s on node %s cannot be ended: %w", what, w.Node, err)
	}
}

// remove deletes the pod, also where ctx has ended.
func (w Workload) remove(ctx context.Context, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return w.Client.DeletePod(bounded, w.Namespace, pod)
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
			return podPreempted, nil
		case err := <-ended:
			return podPending, w.unfinished(ctx, bounded, pod, err)
		}
	}
}

// unfinished says why there is no verdict.
func (w Workload) unfinished(ctx, bounded context.Context, pod nodeapi.Pod, err error) error {
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf("the workload pod on node %s has not ended after %s: %s", w.Node, w.Timeout, pendingBecause(pod))
	default:
		return fmt.Errorf("the workload pod on node %s cannot be followed: %w", w.Node, err)
	}
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("the workload pod was interrupted: %w", context.Cause(ctx))
}

// conclude logs a verdict that passes, and puts one that does not into words.
func (w Workload) conclude(result verdict, pod nodeapi.Pod, resource string) error {
	switch result {
	case podSucceeded:
		w.Log.Info("a pod got a GPU and computed on it", "resource", resource)
		return nil
	case podPreempted:
		return nil // It is not over before the pod is gone.
	case podFailed:
		return fmt.Errorf("the workload pod on node %s failed: %s (its log is that of the pod %s)",
			w.Node, failedBecause(pod), pod.Metadata.Name)
	default:
		return fmt.Errorf("the workload pod on node %s was deleted before it ended; another attempt follows", w.Node)
	}
}
