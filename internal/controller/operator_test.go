package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
)

const namespace = "gpu-operator"

// begin is the initial time of the clock.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// operator has both controllers, set up as in the program, and their cluster.
type operator struct {
	*cluster
	clock *clocktesting.FakeClock
	pods  *cachefilter.PodTrimmer
	nodes *cachefilter.NodeTrimmer
	fleet *fleet.Fleet
	pass  *clusterpolicy.Reconciler
	node  *node.Reconciler
}

// newOperator returns an operator that has just started, with a cluster that has a policy and no nodes.
func newOperator() *operator {
	scheme := runtime.NewScheme()
	// Not all of Kubernetes: with each write the fake client lists the types.
	must(errors.Join(
		corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), nodev1.AddToScheme(scheme),
		admissionv1.AddToScheme(scheme), v1.AddToScheme(scheme),
	))
	o := &operator{cluster: newCluster(scheme), clock: clocktesting.NewFakeClock(begin)}
	definition := observe.CRDMetadata()
	definition.Name = crd.Name
	o.put(definition)
	// Required by some operands, so that all of them run.
	fence := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: labels.AgentPolicyBinding},
	}
	configs := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plugin-configs"},
		Data:       map[string]string{"default": "version: v1"},
	}
	for _, reference := range []client.Object{fence, configs} {
		trimmed, err := observe.TrimReference(reference)
		must(err)
		o.put(as[client.Object](trimmed))
	}
	o.policy(v1.ClusterPolicySpec{
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "plugin-configs", Default: "default"}},
		DCGM:         &v1.DCGMSpec{Enabled: new(true)}, NodeStatusExporter: &v1.NodeStatusExporterSpec{Enabled: new(true)},
	})
	o.start()
	return o
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	m.Run()
}

// slowMachineTiming makes a round wait for all responses: that wait uses the real clock, and the machine may be busy.
func slowMachineTiming() apply.Timing {
	timing := apply.DefaultTiming()
	timing.RoundTimeout = time.Minute
	return timing
}

// start replaces the controllers by new ones without state, as after a restart.
func (o *operator) start() {
	catalogue, err := operands.Catalogue()
	must(err)
	uncached, meter := live{o}, metrics.New(o.clock)
	recorder := events.NewRecorder(o, o.clock, meter.CountDroppedEvent)
	o.fleet, o.pods = fleet.New(), cachefilter.NewPodTrimmer()
	o.nodes = cachefilter.NewNodeTrimmer(func(node string) map[string]string { return o.fleet.Labels(node) })
	o.pass = clusterpolicy.New(clusterpolicy.Options{
		Client:         o.podIndex.Client(o),
		Live:           uncached,
		Applier:        apply.New(o, uncached, o.clock, slowMachineTiming()),
		Status:         statuswriter.New(o, o.clock, recorder, catalogue, statuswriter.DefaultTiming()),
		Fleet:          o.fleet,
		Catalogue:      catalogue,
		Namespace:      namespace,
		OperatorImage:  "example.com/gpu-operator:v1",
		DriverToolkit:  observe.NewDriverToolkit(nil, nil, o.clock),
		OpenShift:      observe.NewOpenShift(nil, nil, nil, o.clock),
		CreateFailures: observe.NewCreateFailures(uncached, namespace, o.clock),
		StartFailures:  observe.NewStartFailures(uncached, namespace, o.clock),
		References:     references{reader: o},
		Schema:         &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: o, Live: uncached},
		DriverSchema:   &observe.Schema{Definition: crd.OfNVIDIADriver(), Cached: o, Live: uncached},
		OptionalKinds:  clusterpolicy.NewOptionalKinds(nil, nil, o.clock),
		NVIDIADrivers:  observe.NewNVIDIADrivers(nil, nil, o.clock, nil),
		OtherOperator:  newOtherOperator(o),
		Meter:          meter,
		Clock:          o.clock,
		Timing:         clusterpolicy.DefaultTiming(),
	})
	o.node = node.New(node.Options{
		Client: o, Live: uncached, Catalogue: catalogue, Namespace: namespace, Fleet: o.fleet,
		Events: recorder, Meter: meter, Clock: o.clock, Timing: node.DefaultTiming(),
	})
	must(o.node.Hydrate(context.Background()))
}

func newOtherOperator(o *operator) *otheroperator.Watcher {
	return otheroperator.New(otheroperator.Options{
		Live: live{o}, Clock: o.clock, Namespace: namespace, OwnVariable: "OPERATOR_IMAGE",
		Timing: otheroperator.DefaultTiming(),
	})
}

// reconcileAll runs a pass.
func (o *operator) reconcileAll() reconcile.Result {
	result, err := o.pass.Reconcile(context.Background(), reconcile.Request{})
	must(err)
	return result
}

// reconcileNode reconciles one node.
func (o *operator) reconcileNode(name string) reconcile.Result {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	result, err := o.node.Reconcile(context.Background(), request)
	must(err)
	return result
}

func (o *operator) reconcileNodes(names []string) {
	for _, name := range names {
		o.reconcileNode(name)
	}
}

// addNodes adds copies of the recorded node, with one of two operating systems, and returns their names.
func (o *operator) addNodes(first, count int) []string {
	text, err := os.ReadFile("testdata/node.yaml")
	must(err)
	recorded := &corev1.Node{}
	must(yaml.UnmarshalStrict(text, recorded))
	names := make([]string, 0, count)
	for i := first; i < first+count; i++ {
		joined := recorded.DeepCopy()
		joined.Name = fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/256, i%256)
		joined.UID = types.UID(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012x", i))
		joined.CreationTimestamp = metav1.NewTime(o.clock.Now())
		joined.Labels[corev1.LabelHostname] = joined.Name
		joined.Labels[labels.FeatureTimestamp] = fmt.Sprint(1763800000 + i)
		if i%4 == 0 {
			joined.Labels[labels.DiscoveryOSVersion] = "22.04"
		}
		o.put(asCached(joined, &corev1.Node{}, o.nodes.Node))
		names = append(names, joined.Name)
	}
	return names
}

// wireObject is a Kubernetes object that can be serialized.
type wireObject[T any] interface {
	*T
	client.Object
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// asCached returns the object as a cache has it: deserialized, so that it shares no string with others, and trimmed.
func asCached[T any, P wireObject[T]](sent, got P, trim func(any) (any, error)) client.Object {
	data, err := sent.Marshal()
	must(err)
	must(got.Unmarshal(data))
	trimmed, err := trim(got)
	must(err)
	return as[client.Object](trimmed)
}

// schedulePods acts as the DaemonSet controller: it creates the missing pods of the nodes, all ready, and returns their
// number.
func (o *operator) schedulePods(names []string) int {
	daemonSets, count := &appsv1.DaemonSetList{}, 0
	scheduled := map[string]int32{}
	must(o.List(context.Background(), daemonSets))
	for _, name := range names {
		running := &corev1.Node{}
		must(o.Get(context.Background(), client.ObjectKey{Name: name}, running))
		for i := range daemonSets.Items {
			pod := o.podOf(&daemonSets.Items[i], name)
			chosen, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(running)
			must(err)
			if exists := o.Get(context.Background(), client.ObjectKeyFromObject(pod), &corev1.Pod{}) == nil; chosen && !exists {
				pod.Spec.NodeName = name
				o.put(asCached(pod, &corev1.Pod{}, o.pods.Pod))
				scheduled[daemonSets.Items[i].Name]++
				count++
			}
		}
	}
	for i := range daemonSets.Items {
		ds := daemonSets.Items[i].DeepCopy()
		o.addToStatus(ds, scheduled[ds.Name])
	}
	return count
}

// addToStatus adds a number of ready pods to the status of a DaemonSet.
func (o *operator) addToStatus(ds *appsv1.DaemonSet, more int32) {
	now := ds.Status.NumberReady + more
	ds.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: ds.Generation, DesiredNumberScheduled: now, CurrentNumberScheduled: now,
		NumberReady: now, NumberAvailable: now, UpdatedNumberScheduled: now,
	}
	o.put(ds)
}

// podOf returns a ready pod of a DaemonSet.
func (o *operator) podOf(ds *appsv1.DaemonSet, name string) *corev1.Pod {
	now := metav1.NewTime(o.clock.Now())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: ds.Name + "-" + name, Namespace: namespace,
			UID: types.UID("1c9c9f1e-" + ds.Name + "-" + name), CreationTimestamp: now,
			Labels: ds.Spec.Template.Labels, Annotations: ds.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec:   *ds.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "10.128.0.1", HostIP: "10.0.0.1"},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	for _, container := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, ContainerID: "containerd://1", Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now,
			}},
		})
	}
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, ContainerID: "containerd://2", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return pod
}

// updatePod applies a change to the pod of an operand on a node.
func (o *operator) updatePod(operand, name string, change func(*corev1.Pod)) {
	pods := o.podsOn(name)
	for i := range pods.Items {
		if pods.Items[i].Labels[labels.Operand] == operand {
			pod := pods.Items[i].DeepCopy()
			change(pod)
			o.put(pod)
			return
		}
	}
	panic("no pod of " + operand + " on " + name)
}

// podsOn lists the operands' pods on a node.
func (o *operator) podsOn(name string) *corev1.PodList {
	pods := &corev1.PodList{}
	onNode := client.MatchingFields{observe.PodNodeField: name}
	must(o.List(context.Background(), pods, client.InNamespace(namespace), onNode))
	return pods
}

// crashPod terminates a container of the pod with an error.
func crashPod(pod *corev1.Pod) {
	ended := &corev1.ContainerStateTerminated{ExitCode: 1}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Terminated: ended}},
	}
	setReady(pod, corev1.ConditionFalse)
}

// recoverPod makes the pod ready, without a trace of a failure.
func recoverPod(pod *corev1.Pod) {
	pod.Status.ContainerStatuses = nil
	setReady(pod, corev1.ConditionTrue)
}

// setReady replaces all conditions, as the kubelet does: the cache has only some of them.
func setReady(pod *corev1.Pod, status corev1.ConditionStatus) {
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: status},
	}
}

// removeNodes deletes nodes and their pods.
func (o *operator) removeNodes(names []string) {
	for _, name := range names {
		pods := o.podsOn(name)
		for i := range pods.Items {
			owner := pods.Items[i].OwnerReferences[0].Name
			o.drop(&pods.Items[i])
			ds := &appsv1.DaemonSet{}
			must(o.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: owner}, ds))
			o.addToStatus(ds.DeepCopy(), -1)
		}
		o.drop(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
}

// advance advances the clock.
func (o *operator) advance(d time.Duration) { o.clock.SetTime(o.clock.Now().Add(d)) }

// makeReady makes nodes ready, from the first pass to the status of the policy, and returns the number of their pods.
func (o *operator) makeReady(names []string) (pods int) {
	o.reconcileAll()
	o.reconcileNodes(names)
	o.reconcileAll()
	pods = o.schedulePods(names)
	o.advance(time.Second)
	o.reconcileNodes(names)
	pods += o.schedulePods(names)
	o.advance(time.Second)
	o.reconcileAll()
	o.reconcileNodes(names)
	o.advance(11 * time.Second)
	o.reconcileAll()
	return pods
}

// policyStatus returns the status of the policy.
func (o *operator) policyStatus() v1.ClusterPolicyStatus {
	policy := &v1.ClusterPolicy{}
	must(o.Get(context.Background(), client.ObjectKey{Name: "cluster-policy"}, policy))
	return policy.Status
}
