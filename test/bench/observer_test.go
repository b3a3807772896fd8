package main

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheObserverTimesEachNode(t *testing.T) {
	g := NewWithT(t)
	o := newObserver()
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	pod := func(app, node string, ready bool, seconds float64) {
		object := podOf(app+node, app, node, ready)
		object.Labels = map[string]string{"app": app}
		o.podSeen(object, at(seconds))
	}
	node := func(name string, status corev1.ConditionStatus, labels map[string]string, seconds float64) {
		object := nodeWith(name, gpuReady, status)
		object.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: labels}
		o.nodeSeen(object, at(seconds))
	}
	gated := map[string]string{"nvidia.com/gpu.deploy.device-plugin": "true"}
	done := map[string]string{"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
	for i, name := range []string{"a", "b"} {
		node(name, corev1.ConditionFalse, nil, 0)
		pod("nvidia-driver-daemonset", name, true, 1)
		pod("nvidia-container-toolkit-daemonset", name, false, 1)
		pod("nvidia-container-toolkit-daemonset", name, true, 2)
		pod("nvidia-container-toolkit-daemonset", name, true, 3)
		node(name, corev1.ConditionFalse, gated, 2.5+float64(i))
		pod("nvidia-device-plugin-daemonset", name, true, 5)
	}
	_, toCondition := o.latencies()
	g.Expect(toCondition).To(BeEmpty(), "no validator is ready")
	pod("nvidia-operator-validator", "a", true, 6)
	pod("nvidia-operator-validator", "b", true, 6)
	node("b", corev1.ConditionFalse, done, 7)
	node("b", corev1.ConditionFalse, done, 7.5)
	g.Expect(o.usable()).To(BeZero())
	node("a", corev1.ConditionTrue, gated, 6.25)
	node("b", corev1.ConditionTrue, done, 8)
	node("b", corev1.ConditionFalse, nil, 9)
	g.Expect(o.usable()).To(Equal(2))

	toLabels, toCondition := o.latencies()
	g.Expect(toLabels).To(ConsistOf(0.5, 1.5))
	g.Expect(toCondition).To(ConsistOf(0.25, 1.0), "that of b is counted from its MIG layout")
}

func TestPercentileIsAValueThatWasMeasured(t *testing.T) {
	g := NewWithT(t)
	values := []float64{4, 1, 3, 2}
	g.Expect(percentile(values, 0.5)).To(Equal(2.0))
	g.Expect(percentile(values, 0.99)).To(Equal(4.0))
	g.Expect(percentile(values, 0.01)).To(Equal(1.0))
	g.Expect(values).To(Equal([]float64{4, 1, 3, 2}), "unchanged")
}
