package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// testPodName is the name of the pods of test, without what the API server appends, and that of their container.
const testPodName = "kubectl-gpu-test"

const (
	// fullAfter is how long the scheduler must find no GPU until the node counts as full. Just after a pod has ended it
	// may not know that its GPU is free.
	fullAfter = 10 * time.Second
	// callTime bounds the calls that Ctrl-C does not interrupt.
	callTime = 15 * time.Second
	// testLogLines is how many lines of the log of a test pod are printed: one for each GPU, and the cause of a failure.
	testLogLines = 20
)

// errNoFreeGPU: the scheduler has found no GPU of the node for the test pod.
var errNoFreeGPU = errors.New("no GPU is free")

// errTaken: the test pod was ended before its program.
var errTaken = errors.New("the test pod was evicted or deleted before it ended, as another pod took its " +
	"GPU: run it again")

// testPod returns the pod that computes on one device of a node, like the pod that the validator on that node starts.
func testPod(validator *corev1.Pod, node, device string, timeout time.Duration) *corev1.Pod {
	like, one, no, yes := validator.Spec.Containers[0], int64(1), false, true
	limit := int64(timeout.Round(time.Second).Seconds())
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: testPodName + "-", Namespace: validator.Namespace, Labels: map[string]string{labels.App: testPodName},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &one, // It has nothing to save.
			// If this program is killed, the GPU is free again at this time.
			ActiveDeadlineSeconds:        &limit,
			ServiceAccountName:           validator.Spec.ServiceAccountName,
			AutomountServiceAccountToken: &no,
			RuntimeClassName:             validator.Spec.RuntimeClassName,
			PriorityClassName:            labels.TestPodPriorityClass,
			ImagePullSecrets:             validator.Spec.ImagePullSecrets,
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: []corev1.NodeSelectorRequirement{{
						Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
					}},
				}}},
			}},
			Containers: []corev1.Container{{
				Name: testPodName, Image: like.Image, ImagePullPolicy: like.ImagePullPolicy,
				Command: []string{labels.CUDABinary},
				Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{corev1.ResourceName(device): *resource.NewQuantity(1, resource.DecimalSI)},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no,
					ReadOnlyRootFilesystem:   &yes,
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
		},
	}
}

// podRun is a test pod from its creation to its deletion.
type podRun struct {
	asked *session
	// pod as it was read last.
	pod      *corev1.Pod
	resource string
}

// lasting returns a context for a call that Ctrl-C does not interrupt: otherwise a pod would be left behind.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}

func (r *podRun) create(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	whole, cancel := lasting(ctx)
	defer cancel()
	options := metav1.CreateOptions{FieldManager: fieldManager}
	created, err := r.asked.core.Pods(r.pod.Namespace).Create(whole, r.pod, options)
	if err != nil {
		return fmt.Errorf("creating the test pod in namespace %s: %w", r.pod.Namespace, said(err))
	}
	r.pod = created
	return nil
}

// remove deletes the pod, unless it is gone.
func (r *podRun) remove(ctx context.Context) error {
	whole, cancel := lasting(ctx)
	defer cancel()
	created := *metav1.NewPreconditionDeleteOptions(string(r.pod.UID))
	err := r.asked.core.Pods(r.pod.Namespace).Delete(whole, r.pod.Name, created)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the test pod is not deleted: run kubectl -n %s delete pod %s: %w", r.pod.Namespace, r.pod.Name,
			said(err))
	}
	return nil
}

// await waits until the pod has succeeded. It returns why it has not, or cannot.
func (r *podRun) await(ctx context.Context) error {
	began := time.Now()
	for {
		pod, err := r.asked.core.Pods(r.pod.Namespace).Get(ctx, r.pod.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			r.pod = pod
		case apierrors.IsNotFound(err):
			return errTaken
		case ctx.Err() == nil:
			return fmt.Errorf("reading the test pod: %w", said(err))
		}
		ended, err := r.verdict(time.Since(began))
		if ended || err != nil {
			return err
		}
		select {
		case <-time.After(endInterval):
		case <-ctx.Done():
			return r.unfinished(ctx)
		}
	}
}

// verdict reports whether the pod has succeeded, or why it cannot.
func (r *podRun) verdict(after time.Duration) (bool, error) {
	verdict := readiness.Pod(r.pod, "", time.Now())
	switch {
	case r.pod.Status.Phase == corev1.PodSucceeded:
		return true, nil
	case r.condition(corev1.DisruptionTarget).Status == corev1.ConditionTrue:
		return false, errTaken
	case r.pod.Status.Reason == "OutOf"+r.resource:
		return false, r.full()
	case r.pod.Status.Phase == corev1.PodFailed:
		return false, r.failure()
	case r.condition(corev1.PodScheduled).Status == corev1.ConditionFalse:
		return false, r.unplaced(after)
	case verdict.State == readiness.Failed:
		return false, fmt.Errorf("the test pod does not start with the image %s: %s", r.pod.Spec.Containers[0].Image,
			text.Join(verdict.Message, verdict.Detail))
	}
	return false, nil
}

// full returns that the node has no free device.
func (r *podRun) full() error {
	return fmt.Errorf("%w: other pods have each %s of the node, which shows that it can be allocated", errNoFreeGPU,
		r.resource)
}

// unplaced returns why the scheduler has found no place for the pod, once it has looked for long enough.
func (r *podRun) unplaced(after time.Duration) error {
	message := r.condition(corev1.PodScheduled).Message
	switch {
	case after < fullAfter:
		return nil
	case strings.Contains(message, "Insufficient "+r.resource):
		return r.full()
	}
	return fmt.Errorf("the scheduler does not place the test pod: %s", message)
}

// condition returns a condition of the pod; an empty one for none.
func (r *podRun) condition(kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range r.pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}

// failure returns why the pod has failed.
func (r *podRun) failure() error {
	for _, status := range r.pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			return fmt.Errorf("the computation failed: %s", text.Join(
				fmt.Sprintf("exit code %d", ended.ExitCode), ended.Reason, readiness.LastLine(ended.Message)))
		}
	}
	return fmt.Errorf("the test pod failed: %s", text.Join(r.pod.Status.Reason, r.pod.Status.Message))
}

// unfinished returns why the pod has not ended in time.
func (r *podRun) unfinished(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("the test pod has not ended")
	}
	if r.condition(corev1.PodScheduled).Status == corev1.ConditionFalse {
		return r.unplaced(fullAfter)
	}
	verdict := readiness.Pod(r.pod, "", time.Now())
	return fmt.Errorf("the test pod has not ended in time, see --timeout: %s", text.Join(verdict.Message, verdict.Detail))
}

// printLog prints the last lines of the log. What failed is reported also if it cannot be read.
func (r *podRun) printLog(ctx context.Context, out io.Writer) {
	log := &explain.Log{Namespace: r.pod.Namespace, Pod: r.pod.Name, Container: testPodName}
	if err := (logsOptions{tail: testLogLines}).print(ctx, out, r.asked, log); err != nil {
		fmt.Fprintf(out, "The log of the test pod cannot be read: %v\n", err)
	}
}
