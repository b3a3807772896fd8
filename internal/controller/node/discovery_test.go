package node

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ago is the value of an annotation with a time before now.
func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

// userPod is a pod with a GPU on the node, with this change.
func userPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "training"},
		Spec: corev1.PodSpec{
			NodeName: "a",
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// reader lists pods by their node, as the API server does, or fails.
type reader struct {
	client.Reader
	failure error
	lists   int
}

func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.lists++
	if r.failure != nil {
		return r.failure
	}
	return r.Reader.List(ctx, list, options...)
}

func newReader(failure error, pods ...*corev1.Pod) *reader {
	builder := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode)
	for _, pod := range pods {
		builder = builder.WithObjects(pod)
	}
	return &reader{Reader: builder.Build(), failure: failure}
}

// A node is released once it has had no GPU for the grace period and no pod uses one.
func TestMissingDiscoveryLabels(t *testing.T) {
	const missing, lost = labels.DiscoveryMissingSince, labels.DiscoveryLostSince
	noted := func(since time.Duration) map[string]string {
		return map[string]string{missing: ago(since), lost: ago(since)}
	}
	at := func(text string) *string { return &text }
	both := map[string]*string{missing: at(ago(0)), lost: at(ago(0))}
	tests := map[string]struct {
		// has are the discovery labels of the node: all, none, only those of the operating system, or only the GPU's.
		has         string
		annotations map[string]string
		allocatable string
		grace       time.Duration
		// selector: a nodeSelector requires a label that is missing.
		selector bool
		pods     []*corev1.Pod
		failure  error
		want     missingDiscovery
		lists    int
	}{
		"all labels": {has: "all"},
		"the GPU is missing: the grace period starts": {
			has: "os", want: missingDiscovery{annotations: both, recheckAfter: 10 * time.Minute},
		},
		"it has been missing for half of it": {
			has: "os", annotations: noted(5 * time.Minute), want: missingDiscovery{recheckAfter: 5 * time.Minute},
		},
		"one second before the end": {
			has: "os", annotations: noted(10*time.Minute - time.Second), want: missingDiscovery{recheckAfter: time.Second},
		},
		"the grace period is over": {
			has: "os", annotations: noted(10 * time.Minute), want: missingDiscovery{release: true}, lists: 1,
		},
		"a shorter one is over": {
			has: "os", annotations: noted(time.Minute), grace: time.Minute, want: missingDiscovery{release: true}, lists: 1,
		},
		"a longer one is not": {
			has:         "os",
			annotations: noted(23 * time.Hour),
			grace:       24 * time.Hour,
			want:        missingDiscovery{recheckAfter: time.Hour},
		},
		"a pod uses a GPU": {
			has:         "os",
			annotations: noted(time.Hour),
			pods:        []*corev1.Pod{userPod(nil)},
			want:        missingDiscovery{recheckAfter: 10 * time.Minute},
			lists:       1,
		},
		"a pod uses a GPU, and the grace period is short": {
			has:         "os",
			annotations: noted(time.Hour),
			grace:       5 * time.Second,
			pods:        []*corev1.Pod{userPod(nil)},
			want:        missingDiscovery{recheckAfter: 5 * time.Second},
			lists:       1,
		},
		"a pod uses a GPU of another node": {
			has:         "os",
			annotations: noted(time.Hour),
			pods:        []*corev1.Pod{userPod(func(p *corev1.Pod) { p.Spec.NodeName = "b" })},
			want:        missingDiscovery{release: true},
			lists:       1,
		},
		"pods cannot be listed": {
			has:         "os",
			annotations: noted(time.Hour),
			failure:     errors.New("forbidden"),
			want:        missingDiscovery{recheckAfter: 10 * time.Minute},
			lists:       1,
		},
		"the kubelet advertises GPUs": {
			has: "os", allocatable: "8", annotations: map[string]string{missing: ago(time.Hour)},
		},
		"the kubelet advertises GPUs again": {
			has:         "os",
			allocatable: "8",
			annotations: noted(time.Hour),
			want:        missingDiscovery{annotations: map[string]*string{lost: nil}},
		},
		"the kubelet stops advertising them an hour after the labels were removed": {
			has: "os", annotations: map[string]string{missing: ago(time.Hour)},
			want: missingDiscovery{annotations: map[string]*string{lost: at(ago(0))}, recheckAfter: 10 * time.Minute},
		},
		"discovery restarts": {
			has: "none", want: missingDiscovery{annotations: map[string]*string{missing: at(ago(0))}},
		},
		"discovery has been missing for a week": {
			has:         "none",
			annotations: map[string]string{missing: ago(7 * 24 * time.Hour)},
		},
		"discovery goes missing after the GPU": {
			has: "none", annotations: noted(time.Hour), want: missingDiscovery{annotations: map[string]*string{lost: nil}},
		},
		"discovery returns after a week, without the GPU at first": {
			has: "os", annotations: map[string]string{missing: ago(7 * 24 * time.Hour)},
			want: missingDiscovery{annotations: map[string]*string{lost: at(ago(0))}, recheckAfter: 10 * time.Minute},
		},
		"the operating system is missing": {
			has:  "gpu",
			want: missingDiscovery{annotations: map[string]*string{missing: at(ago(0))}},
		},
		"all labels are back": {
			has:         "all",
			annotations: noted(time.Hour),
			want:        missingDiscovery{annotations: map[string]*string{missing: nil, lost: nil}},
		},
		"a label that a selector requires": {
			has:      "all",
			selector: true,
			want:     missingDiscovery{annotations: map[string]*string{missing: at(ago(0))}, recheckAfter: 10 * time.Minute},
		},
		"a label that a selector requires is overdue": {
			has:         "all",
			selector:    true,
			annotations: map[string]string{missing: ago(10 * time.Minute)},
			want:        missingDiscovery{graceOver: true},
		},
		"invalid times": {
			has:         "os",
			annotations: map[string]string{missing: ago(-time.Hour), lost: "long ago"},
			want:        missingDiscovery{annotations: both, recheckAfter: 10 * time.Minute},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: test.annotations, Labels: map[string]string{
					labels.GPUPresent: labels.True, labels.Pool: "ubuntu24.04-amd64",
				}},
			}
			if test.has == "all" || test.has == "gpu" {
				node.Labels[labels.DiscoveryPCIPresent] = labels.True
			}
			if test.has == "all" || test.has == "os" {
				node.Labels[labels.DiscoveryOSID], node.Labels[labels.DiscoveryOSVersion] = "ubuntu", "24.04"
			}
			if test.allocatable != "" {
				node.Status.Allocatable = corev1.ResourceList{labels.ResourceGPU: resource.MustParse(test.allocatable)}
			}
			spec := v1.ClusterPolicySpec{}
			if test.grace != 0 {
				spec.NodeDiscovery = &v1.NodeDiscoverySpec{GracePeriod: &metav1.Duration{Duration: test.grace}}
			}
			facts := observe.Facts(node)
			live := newReader(test.failure, test.pods...)
			r := &Reconciler{Options: Options{Live: live, Namespace: "gpu-operator", Timing: DefaultTiming()}}
			at := &scope{Reconciler: r, node: node, entry: fleet.Entry{Facts: facts}, now: now}
			if test.want.annotations == nil {
				test.want.annotations = map[string]*string{}
			}
			got := at.checkDiscovery(t.Context(), effective.Of(spec), test.selector || facts.DescribeMissingLabels() != "")
			g.Expect(len(got.users) > 0 || got.unread != nil).To(Equal(test.lists > 0 && !got.release), "why it is kept")
			g.Expect(errors.Is(got.unread, test.failure)).To(BeTrue(), "%v", got.unread)
			got.users, got.unread = nil, nil
			g.Expect(got).To(Equal(test.want))
			g.Expect(live.lists).To(Equal(test.lists), "pods are listed only before a release")
		})
	}
}
