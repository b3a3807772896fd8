package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// The MIG manager says nowhere but in its log why a layout has failed. Its pods are in the operator's namespace.
// +kubebuilder:rbac:groups="",namespace=gpu-operator,resources=pods/log,verbs=get

// What is read of a log: the last lines, and of these as many bytes as lines of usual length have.
const (
	maxLogLines int64 = 200
	maxLogBytes int64 = 128 << 10
)

// PodLogs reads the logs of pods.
type PodLogs struct{ pods corev1client.PodsGetter }

// NewPodLogs returns a PodLogs that uses this HTTP client.
func NewPodLogs(config *rest.Config, client *http.Client) (*PodLogs, error) {
	pods, err := corev1client.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("creating the client that reads logs: %w", err)
	}
	return &PodLogs{pods: pods}, nil
}

// Tail returns the last lines of the log of a container. It makes one request, which the API server passes on to the
// kubelet of the pod's node: the context should have a deadline.
func (l *PodLogs) Tail(ctx context.Context, namespace, pod, container string) (string, error) {
	stream, err := l.pods.Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, TailLines: new(maxLogLines), LimitBytes: new(maxLogBytes),
	}).MaxRetries(0).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s/%s: %w", namespace, pod, err)
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(io.LimitReader(stream, maxLogBytes))
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s/%s: %w", namespace, pod, err)
	}
	return string(text), nil
}
