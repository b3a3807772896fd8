package observe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// driverPodsAtATime is the size of the pages in which driver pods are read. Each node has one, of 10 to 20 KB, and the
// first pass after a start reads them all: those of 5,000 nodes in one list doubled the operator's memory.
const driverPodsAtATime = 250

// EachDriverPod calls visit with each driver pod of this operator and of NVIDIA's, all of one version of the cluster.
// It reads pages from the API server, each within the deadline, so visit must copy what it keeps: a pointer keeps its
// page. If it fails, visit may have been called with some of the pods.
func EachDriverPod(
	ctx context.Context, live client.Reader, deadline time.Duration, namespace string, visit func(*corev1.Pod),
) error {
	pages := pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		pods := &corev1.PodList{}
		err := live.List(ctx, pods, client.InNamespace(namespace), client.Limit(page.Limit), client.Continue(page.Continue),
			client.MatchingLabels{labels.Component: labels.DriverComponent})
		return pods, err
	})
	pages.PageSize, pages.PageBufferSize = driverPodsAtATime, 0
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		pod, isPod := object.(*corev1.Pod)
		if !isPod {
			return fmt.Errorf("%T is not a pod", object)
		}
		visit(pod)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing the driver pods: %w", err)
	}
	return nil
}
