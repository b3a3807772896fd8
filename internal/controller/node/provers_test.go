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
		"a driver that the host is said to have": {100, 101, 0, 60, earlier, leaveToHost, append(provers[:2:2], "driver")},
		"a driver that the host has": {
			100, 101, 0, 60, "validated for driver instance none\n", leaveToHost, []string{"driver"},
		},
		"a driver that the host is said to have, and a pod of it still": {
			100, 101, 0, 60, earlier, func(e *env) {
				setLabel(e, "nvidia.com/gpu.deploy.driver", "pre-installed")
				e.setPod("driver", starts)
			}, nil,
		},
		"a driver that the spec leaves to the host": {100, 101, 0, 60, earlier, func(e *env) {
			e.spec.Driver = &v1.DriverSpec{Enabled: new(false)}
			deletePod(e, "driver")
		}, append(provers[:2:2], "driver")},
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
