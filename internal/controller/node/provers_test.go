package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// leaveToHost labels the node as one with a driver of its host, which removes the driver's pod.
func leaveToHost(e *env) {
	setLabel(e, "nvidia.com/gpu.deploy.driver", "pre-installed")
	deletePod(e, "driver")
}

func setLabel(e *env, key, value string) {
	node := e.node()
	node.Labels[key] = value
	e.Expect(e.client.Update(e.t.Context(), node)).To(Succeed())
}

func deletePod(e *env, name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name}}
	e.Expect(e.client.Delete(e.t.Context(), pod)).To(Succeed())
}

// The pods whose validations are of an earlier driver are replaced once the present driver is ready, and no others.
func TestStaleProversAreReplaced(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	provers := []string{"container-toolkit", "operator-validator"}
	const earlier = "validated for driver instance earlier\n"
	tests := map[string]struct {
		// The pod of the driver was created and started then, the provers were created and ready.
		driverCreated, driverStarted, created, ready int
		// message is what an init container of each pod has left.
		message  string
		change   func(*env)
		replaced []string
	}{
		"a driver that was replaced without them": {100, 101, 0, 60, earlier, nil, provers},
		"a driver pod in place of the host's driver": {
			100, 101, 0, 60, "validated for driver instance none\n", nil, provers,
		},
		"the driver that they have validated, with a clock that was set": {
			100, 101, 0, 60, "validated for driver instance present\n", nil, nil,
		},
		"a first driver":                        {100, 101, 0, 60, "", nil, nil},
		"a driver that they have waited for":    {10, 11, 0, 60, earlier, nil, nil},
		"a driver that they were created after": {10, 90, 50, 60, earlier, nil, nil},
		"a driver that is not ready": {
			100, 101, 0, 60, earlier, func(e *env) { e.setPod("driver", starts) }, nil,
		},
		"a prover that validates": {
			100, 101, 0, 60, earlier, func(e *env) { e.setPod(provers[1], starts) }, provers[:1],
		},
		"a paused policy": {100, 101, 0, 60, earlier, func(e *env) { e.spec.Paused = new(true) }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			all := &corev1.PodList{}
			e.Expect(e.client.List(t.Context(), all)).To(Succeed())
			for i := range all.Items {
				pod := &all.Items[i]
				created, ready := at(test.created), at(test.ready)
				if pod.Name == "driver" {
					created, ready = at(test.driverCreated), at(test.driverStarted+50)
					pod.UID, pod.Status.StartTime = "present", new(at(test.driverStarted))
				}
				pod.Status.InitContainerStatuses = validatedWith(test.message)
				pod.CreationTimestamp, pod.Status.Conditions[1].LastTransitionTime = created, ready
				e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
				pod.ResourceVersion = ""
				e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
			}
			if test.change != nil {
				test.change(e)
			}
			e.publish()
			_, err := e.reconcileAfter(200 * time.Second)
			e.Expect(err).NotTo(HaveOccurred())
			var replaced []string
			for i := range all.Items {
				if apierrors.IsNotFound(e.client.Get(t.Context(), client.ObjectKeyFromObject(&all.Items[i]), &corev1.Pod{})) {
					replaced = append(replaced, all.Items[i].Name)
				}
			}
			e.Expect(replaced).To(ConsistOf(test.replaced))
		})
	}
}

// Where a driver is left to the host, no pod is replaced, whatever it has validated: its successor may find the same,
// as with the driver of another program's container, or with a file that a driver of the operator has left. A start of
// the operator changes nothing about that.
func TestProversOfAHostsDriverStay(t *testing.T) {
	for name, leave := range map[string]func(*env){
		"by label": leaveToHost,
		"by the spec": func(e *env) {
			e.spec.Driver = &v1.DriverSpec{Enabled: new(false)}
			deletePod(e, "driver")
		},
	} {
		for _, instance := range []string{"9f0c1d7e-earlier", "since-1700000000.000000001", "none"} {
			t.Run(name+", validated "+instance, func(t *testing.T) {
				e := newEnv(t)
				leave(e)
				pods := &corev1.PodList{}
				e.Expect(e.client.List(t.Context(), pods)).To(Succeed())
				e.Expect(len(pods.Items)).To(BeNumerically(">", 2))
				for i := range pods.Items {
					pods.Items[i].Status.InitContainerStatuses = validatedWith("validated for driver instance " + instance + "\n")
					e.Expect(e.client.Status().Update(t.Context(), &pods.Items[i])).To(Succeed())
				}
				for range 3 {
					e.restart()
					e.settle()
				}
				for i := range pods.Items {
					key := client.ObjectKeyFromObject(&pods.Items[i])
					e.Expect(e.client.Get(t.Context(), key, &corev1.Pod{})).To(Succeed())
				}
			})
		}
	}
}

// A pod in place of a stale prover stays, also one that reports the earlier driver again.
func TestSuccessorsOfStaleProversStay(t *testing.T) {
	e := newEnv(t)
	at := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	put := func(name string, created, ready metav1.Time) {
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: "gpu-operator", Name: name}
		if err := e.client.Get(t.Context(), key, pod); err == nil {
			e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
		}
		pod = proverPod(name, created, ready)
		e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
	}
	provers := []string{"container-toolkit", "operator-validator"}
	put("driver", at(100), at(101))
	for _, name := range provers {
		put(name, at(0), at(60))
	}
	e.publish()
	e.clock.SetTime(at(200).Time)
	deletions := map[string]int{}
	for round := range 4 {
		e.settle()
		for _, name := range provers {
			key := client.ObjectKey{Namespace: "gpu-operator", Name: name}
			if apierrors.IsNotFound(e.client.Get(t.Context(), key, &corev1.Pod{})) {
				deletions[name]++
				// Also with a clock of the node that is behind.
				put(name, at(210+round), at(50))
			}
		}
		e.restart()
	}
	e.Expect(deletions).To(Equal(map[string]int{"container-toolkit": 1, "operator-validator": 1}))
}

// proverPod is a pod of this operand on the node, created and ready then, that has validated an earlier driver.
func proverPod(name string, created, ready metav1.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "gpu-operator", UID: types.UID("uid-of-" + name), CreationTimestamp: created,
			Labels: map[string]string{"nvidia.com/gpu-operator.operand": name},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &created,
			InitContainerStatuses: validatedWith("validated for driver instance earlier\n"),
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ready},
			},
		},
	}
}

// validatedWith returns the status of an init container that has ended well and left this message.
func validatedWith(message string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: "validation", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: message},
	}}}
}

// No pod of a first installation is replaced, in whatever order its pods are created and become ready: also where a
// simulated kubelet makes them ready before there is a driver.
func TestNoProverOfAFirstInstallationIsReplaced(t *testing.T) {
	const driver = "driver"
	names := []string{driver, "container-toolkit", "operator-validator", "device-plugin"}
	orders, others := 0, 0
	eachOrder(names, func(events []string) {
		orders++
		pods := podsByEvents(events)
		for name, pod := range pods {
			for message, replaced := range map[string]bool{
				"": false, "validated for driver instance present\n": false,
				// With an earlier driver it is, so that the orders are those that matter.
				"validated for driver instance earlier\n": name != driver &&
					slices.Index(events, "ready "+name) < slices.Index(events, "create "+driver),
			} {
				pod.Status.InitContainerStatuses = validatedWith(message)
				if replaced {
					others++
				}
				if validatedBefore(pod, pods[driver]) != replaced {
					t.Errorf("%s with the message %q: replaced is not %t in the order %q", name, message, replaced, events)
				}
			}
		}
	})
	if orders != 2520 || others == 0 {
		t.Errorf("%d orders with %d replaced pods, instead of all 2520 of four pods with some", orders, others)
	}
}

// eachOrder calls visit with each order of the events "create <name>" and "ready <name>" in which every pod is created
// before it is ready.
func eachOrder(names []string, visit func(events []string)) {
	var extend func(events []string)
	extend = func(events []string) {
		if len(events) == 2*len(names) {
			visit(events)
			return
		}
		for _, name := range names {
			switch next := slices.Clip(events); {
			case !slices.Contains(events, "create "+name):
				extend(append(next, "create "+name))
			case !slices.Contains(events, "ready "+name):
				extend(append(next, "ready "+name))
			}
		}
	}
	extend(nil)
}

// podsByEvents returns pods that were created and became ready at these events, one in each second.
func podsByEvents(events []string) map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for second, event := range events {
		what, name, _ := strings.Cut(event, " ")
		moment := metav1.NewTime(now.Add(time.Duration(second) * time.Second))
		if what == "create" {
			pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: moment}}
			pods[name].Status.StartTime = &moment
			continue
		}
		pods[name].Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: moment},
		}
	}
	pods["driver"].UID = "present"
	return pods
}

// A pod that ends, or whose times are unknown, is no stale prover.
func TestProversWithoutTimes(t *testing.T) {
	at := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	for name, test := range map[string]struct {
		change func(prover, driver *corev1.Pod)
		want   bool
	}{
		"a stale one":      {func(_, _ *corev1.Pod) {}, true},
		"one that ends":    {func(p, _ *corev1.Pod) { p.DeletionTimestamp = new(at(1)) }, false},
		"one that is late": {func(p, _ *corev1.Pod) { p.Status.Conditions[1].LastTransitionTime = at(101) }, false},
		"never ready":      {func(p, _ *corev1.Pod) { p.Status.Conditions = nil }, false},
		"not started":      {func(_, d *corev1.Pod) { d.Status.StartTime = nil }, false},
		"created as late":  {func(p, _ *corev1.Pod) { p.CreationTimestamp = at(100) }, false},
		"of the driver":    {func(p, _ *corev1.Pod) { p.Status.InitContainerStatuses = validatedWith("x") }, false},
	} {
		prover, driver := proverPod("container-toolkit", at(0), at(60)), proverPod("driver", at(100), at(150))
		test.change(prover, driver)
		NewWithT(t).Expect(validatedBefore(prover, driver)).To(Equal(test.want), name)
	}
}
