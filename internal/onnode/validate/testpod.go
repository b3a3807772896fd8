package validate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	// DefaultTestPodTimeout limits a test pod from its creation to its end, image pulls included.
	DefaultTestPodTimeout = 4 * time.Minute
	// DefaultFullAfter is how long a node must have no GPU left to count as full. Just after the kubelet's
	// report the scheduler may not be aware of the GPUs yet.
	DefaultFullAfter = 10 * time.Second
	// DefaultEndTimeout limits how long a deleted pod may take to end.
	DefaultEndTimeout = 20 * time.Second
	// TestPodAttemptMargin is what an attempt needs in addition to the time of its pod: for the end of an
	// earlier attempt's pod, for that of its own, and for the requests.
	TestPodAttemptMargin = 2*DefaultEndTimeout + 20*time.Second
	// cleanupTimeout limits the deletion of a pod on failure, for which the kubelet's SIGTERM leaves little
	// time. If it fails, the owner reference deletes the pod.
	cleanupTimeout = time.Second
)

// TestPod runs a pod that requests one GPU and computes on it: the whole path of a user's pod, from the scheduler
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
// A node has one test pod at a time, since all have the same name. A pod that hangs with its GPU must not make the
// node look full, so an attempt first deletes the earlier pod, and fails if that does not end; and a node is not full
// before the attempt's own pod is gone.
type TestPod struct {
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
func (t TestPod) Run(ctx context.Context, resource string) error {
	pod, err := t.create(ctx, resource)
	if err != nil {
		return err
	}
	result, err := t.follow(ctx, pod, resource)
	if result == podPreempted {
		if err = t.end(ctx, "the test pod", pod); err == nil {
			t.Log.Info("all GPUs are in use, which shows that they can be allocated; no test pod was run", "node", t.Node,
				"resource", resource)
			return nil
		}
	}
	if result != podFailed {
		if cleanupErr := t.remove(ctx, pod); cleanupErr != nil {
			t.Log.Warn("the test pod cannot be deleted; the garbage collector deletes it with its owner",
				"pod", pod.Metadata.Name, "error", cleanupErr)
		}
	}
	return err
}

// create creates the pod, after deleting that of an earlier attempt.
func (t TestPod) create(ctx context.Context, resource string) (nodeapi.Pod, error) {
	wanted := t.pod(resource)
	// A request that is cut off may still have created a pod, which then would not be deleted.
	lasting, cancel := outlasting(ctx, cleanupTimeout)
	defer cancel()
	pod, err := t.Client.CreatePod(lasting, t.Namespace, wanted)
	if nodeapi.IsAlreadyExists(err) {
		if err := t.removeEarlier(ctx, wanted.Metadata.Name); err != nil {
			return nodeapi.Pod{}, err
		}
		pod, err = t.Client.CreatePod(lasting, t.Namespace, wanted)
	}
	if err != nil {
		return nodeapi.Pod{}, fmt.Errorf(
			"the test pod cannot be created in namespace %s; check that the priority class %s exists, and the quotas and "+
				"admission policies of the namespace: %w", t.Namespace, t.PriorityClass, err)
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
func (t TestPod) removeEarlier(ctx context.Context, name string) error {
	earlier, err := t.Client.Pod(ctx, t.Namespace, name)
	switch {
	case nodeapi.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("the test pod of an earlier attempt cannot be read: %w", err)
	case earlier.Metadata.Labels[labels.App] != testPodApp:
		return fmt.Errorf("the pod %s/%s is not a test pod, but has the name of the test pod of node %s; delete it",
			t.Namespace, name, t.Node)
	}
	return t.end(ctx, "the earlier test pod", earlier)
}

// end deletes the pod, which the error calls what, and returns once it is gone. Until then it may occupy a GPU: a
// process that hangs in the driver cannot be killed.
func (t TestPod) end(ctx context.Context, what string, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(ctx, t.EndTimeout)
	defer cancel()
	err := t.Client.DeletePod(bounded, t.Namespace, pod)
	if err == nil {
		err = t.Client.AwaitPodGone(bounded, t.Namespace, pod)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return interrupted(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf(
			"%s on node %s has not ended %s after its deletion; see the kernel log of the node for Xid errors of its GPU, "+
				"and the kubelet's log for the pod %s", what, t.Node, t.EndTimeout, pod.Metadata.Name)
	default:
		return fmt.Errorf("%s on node %s cannot be ended: %w", what, t.Node, err)
	}
}

// remove deletes the pod, even after ctx has ended.
func (t TestPod) remove(ctx context.Context, pod nodeapi.Pod) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return t.Client.DeletePod(bounded, t.Namespace, pod)
}

// follow waits for the outcome of the pod.
func (t TestPod) follow(ctx context.Context, pod nodeapi.Pod, resource string) (outcome, error) {
	bounded, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	states, ended := make(chan nodeapi.Pod), make(chan error, 1)
	go func() {
		ended <- t.Client.AwaitPod(bounded, t.Namespace, pod, func(now nodeapi.Pod) bool {
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
				return result, t.conclude(result, pod, resource)
			case result != podUnplaced:
				full = nil
			case full == nil:
				full = time.After(t.FullAfter)
			}
		case <-full:
			return podPreempted, nil
		case err := <-ended:
			return podPending, t.unfinished(ctx, bounded, pod, err)
		}
	}
}

// unfinished returns why there is no outcome.
func (t TestPod) unfinished(ctx, bounded context.Context, pod nodeapi.Pod, err error) error {
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf("the test pod on node %s has not ended after %s: %s", t.Node, t.Timeout, pendingBecause(pod))
	default:
		return fmt.Errorf("the test pod on node %s cannot be watched: %w", t.Node, err)
	}
}

func interrupted(ctx context.Context) error {
	return fmt.Errorf("the test pod was interrupted: %w", context.Cause(ctx))
}

// conclude logs an outcome that passes, and returns an error for one that does not.
func (t TestPod) conclude(result outcome, pod nodeapi.Pod, resource string) error {
	switch result {
	case podSucceeded:
		t.Log.Info("a pod got a GPU and computed on it", "resource", resource)
		return nil
	case podPreempted:
		return nil // Run logs it once the pod is gone.
	case podFailed:
		return fmt.Errorf("the test pod on node %s failed: %s (see the log of the pod %s)",
			t.Node, failedBecause(pod), pod.Metadata.Name)
	default:
		return fmt.Errorf("the test pod on node %s was deleted before it ended; another attempt follows", t.Node)
	}
}
