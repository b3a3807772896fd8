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
	// DefaultWorkloadTimeout limits a workload pod from its creation to its end, image pulls included.
	DefaultWorkloadTimeout = 4 * time.Minute
	// DefaultFullAfter is how long a node must have no GPU left to count as full. Just after the kubelet's
	// report the scheduler may not be aware of the GPUs yet.
	DefaultFullAfter = 10 * time.Second
	// DefaultEndTimeout limits how long a deleted pod may take to end.
	DefaultEndTimeout = 20 * time.Second
	// WorkloadAttemptMargin is what an attempt needs in addition to the time of its pod: for the end of an
	// earlier attempt's pod, for that of its own, and for the requests.
	WorkloadAttemptMargin = 2*DefaultEndTimeout + 20*time.Second
	// cleanupTimeout limits the deletion of a pod on failure, for which the kubelet's SIGTERM leaves little
	// time. If it fails, the owner reference deletes the pod.
	cleanupTimeout = time.Second
)

// Workload runs a pod that requests one GPU and computes on it: the whole path of a user's pod, from the scheduler
// through the device plugin and the container runtime to the driver.
//
// It never takes a GPU from another pod. The scheduler places the pod (the kubelet would reject a pod that is bound to
// a full node, and might also reject the user's pod that was assigned the same GPU). The pod's priority class must be
// below all others and forbid preemption, so that any other pod takes its GPU back at any time. And a node without a
// free GPU passes: GPUs that are in use can be allocated.
//
// A pod that has succeeded is deleted; one that has failed stays until the next attempt, for its log. Either is deleted
// with its owner.
//
// A node has one workload pod at a time, since all have the same name. A pod that hangs with its GPU must not make the
// node look full, so an attempt first deletes the earlier pod, and fails if that does not end; and a node is not full
// before the attempt's own pod is gone.
type Workload struct {
	Client *nodeapi.Client
	// Node is where the pod runs, Namespace where it is created.
	Node, Namespace string
	// Owner is the pod of the validator, in the same namespace, with which the pod is deleted.
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

// Run computes on one GPU of the node, as this resource. It returns nil if that succeeded or if no GPU is free. The
// same cause has the same error in each attempt.
func (w Workload) Run(ctx context.Context, resource string) error {
	pod, err := w.create(ctx, resource)
	if err != nil {
		return err
	}
	result, err := w.follow(ctx, pod, resource)
	if result == podPreempted {
		if err = w.end(ctx, "the workload pod", pod); err == nil {
			w.Log.Info("all GPUs are in use, which shows that they can be allocated; no workload was run", "node", w.Node,
				"resource", resource)
			return nil
		}
	}
	if result != podFailed {
		if cleanupErr := w.remove(ctx, pod); cleanupErr != nil {
			w.Log.Warn("the workload pod cannot be deleted; the garbage collector deletes it with its owner",
				"pod", pod.Metadata.Name, "error", cleanupErr)
		}
	}
	return err
}

// create creates the pod, after deleting that of an earlier attempt.
func (w Workload) create(ctx context.Context, resource string) (nodeapi.Pod, error) {
	wanted := w.pod(resource)
	// A request that is cut off may still have created a pod, which then would not be deleted.
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
				"admission policies of the namespace: %w", w.Namespace, w.PriorityClass, err)
	}
	return pod, nil
}

// outlasting returns a context that ends this long after ctx.
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
		return fmt.Errorf("the workload pod of an earlier attempt cannot be read: %w", err)
	case earlier.Metadata.Labels[labels.App] != workloadApp:
		return fmt.Errorf("the pod %s/%s is not a workload pod, but has the name of the workload pod of node %s; delete it",
			w.Namespace, name, w.Node)
	}
	return w.end(ctx, "the earlier workload pod", earlier)
}

// end deletes the pod, which the error calls what, and returns once it is gone. Until then it may occupy a GPU: a
// process that hangs in the driver cannot be killed.
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
				"and the kubelet's log for the pod %s", what, w.Node, w.EndTimeout, pod.Metadata.Name)
	default:
		return fmt.Errorf("%s on node %s cannot be ended: %w", what, w.Node, err)
	}
}

// remove deletes the pod, even after ctx has ended.
func (w Workload) remove(ctx context.Context, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return w.Client.DeletePod(bounded, w.Namespace, pod)
}

// follow waits for the outcome of the pod.
func (w Workload) follow(ctx context.Context, pod nodeapi.Pod, resource string) (outcome, error) {
	bounded, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	states, ended := make(chan nodeapi.Pod), make(chan error, 1)
	go func() {
		ended <- w.Client.AwaitPod(bounded, w.Namespace, pod, func(now nodeapi.Pod) bool {
			select {
			case states <- now:
			case <-bounded.Done():
			}
			return outcomeOf(now, resource).final()
		})
	}()
	var full <-chan time.Time
	for {
		select {
		case pod = <-states:
			switch result := outcomeOf(pod, resource); {
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

// unfinished returns why there is no outcome.
func (w Workload) unfinished(ctx, bounded context.Context, pod nodeapi.Pod, err error) error {
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf("the workload pod on node %s has not ended after %s: %s", w.Node, w.Timeout, pendingBecause(pod))
	default:
		return fmt.Errorf("the workload pod on node %s cannot be watched: %w", w.Node, err)
	}
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("the workload pod was interrupted: %w", context.Cause(ctx))
}

// conclude logs an outcome that passes, and returns an error for one that does not.
func (w Workload) conclude(result outcome, pod nodeapi.Pod, resource string) error {
	switch result {
	case podSucceeded:
		w.Log.Info("a pod got a GPU and computed on it", "resource", resource)
		return nil
	case podPreempted:
		return nil // Run logs it once the pod is gone.
	case podFailed:
		return fmt.Errorf("the workload pod on node %s failed: %s (see the log of the pod %s)",
			w.Node, failedBecause(pod), pod.Metadata.Name)
	default:
		return fmt.Errorf("the workload pod on node %s was deleted before it ended; another attempt follows", w.Node)
	}
}
