package observe_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// pagedPods answers lists of pods with as many as were asked for.
type pagedPods struct {
	client.Reader
	pods   []corev1.Pod
	failAt int
	asked  []client.ListOptions
}

func (p *pagedPods) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	p.asked = append(p.asked, options)
	if _, limited := ctx.Deadline(); !limited || len(p.asked) == p.failAt {
		return errors.New("refused")
	}
	from, _ := strconv.Atoi(options.Continue)
	end := min(from+int(options.Limit), len(p.pods))
	pods, isPods := list.(*corev1.PodList)
	if !isPods {
		return errors.New("pods only")
	}
	pods.Items = p.pods[from:end]
	if end < len(p.pods) {
		pods.Continue = strconv.Itoa(end)
	}
	return nil
}

func TestEachDriverPodReadsPages(t *testing.T) {
	g := NewWithT(t)
	live := &pagedPods{}
	var names []string
	for i := range 600 {
		names = append(names, "driver-"+strconv.Itoa(i))
		live.pods = append(live.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: names[i]}})
	}
	var visited []string
	visit := func(pod *corev1.Pod) { visited = append(visited, pod.Name) }
	g.Expect(observe.EachDriverPod(t.Context(), live, time.Minute, "gpu-operator", visit)).To(Succeed())
	g.Expect(visited).To(Equal(names))
	g.Expect(live.asked).To(HaveLen(3))
	for _, asked := range live.asked {
		g.Expect(asked.Limit).To(Equal(int64(250)))
		g.Expect(asked.Namespace).To(Equal("gpu-operator"))
		g.Expect(asked.LabelSelector.String()).To(Equal("app.kubernetes.io/component=nvidia-driver"))
	}

	live.asked, live.failAt = nil, 2
	g.Expect(observe.EachDriverPod(t.Context(), live, time.Minute, "gpu-operator", visit)).
		To(MatchError("listing the driver pods: refused"))
}
