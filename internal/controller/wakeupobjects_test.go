package controller_test

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// TestEachFieldOfADaemonSetThatMattersWakes: see TestEachFieldOfANodeThatMattersWakes. Each event of a DaemonSet causes
// a pass, and that publishes another Basis if a node may be assessed differently. A change of the spec has another
// generation.
func TestEachFieldOfADaemonSetThatMattersWakes(t *testing.T) {
	var lost wakeups
	w := watch(scenes["a driver is outdated"])
	basis := *w.fleet.Basis()
	// publish replaces the DaemonSet in a new fleet, and returns the versions of the Basis before and after.
	publish := func(ds *appsv1.DaemonSet) (before, after uint64) {
		w.useFleet(fleet.New())
		before = w.fleet.Publish(basis, w.clock.Now()).Version
		next := basis
		next.Stack.DaemonSets = maps.Clone(basis.Stack.DaemonSets)
		next.Stack.DaemonSets[ds.Name] = ds
		return before, w.fleet.Publish(next, w.clock.Now()).Version
	}
	// planned assesses the node by the Basis with the DaemonSet alone.
	assessed := func(ds *appsv1.DaemonSet) planned {
		next := basis
		next.Stack.DaemonSets = maps.Clone(basis.Stack.DaemonSets)
		next.Stack.DaemonSets[ds.Name] = ds
		w.useFleet(fleet.New())
		w.fleet.Publish(next, w.clock.Now())
		w.put(w.node.DeepCopy())
		return w.plan(true)
	}
	for name, ds := range basis.Stack.DaemonSets {
		if operand := ds.Labels[labels.Operand]; operand != "driver" && operand != "device-plugin" {
			continue
		}
		control, bare := assessed(ds), ds.DeepCopy()
		bare.Spec = appsv1.DaemonSetSpec{}
		for _, m := range mutants(bare) {
			if m.object.Spec = ds.Spec; m.object.Name != name || m.object.Namespace != ds.Namespace {
				continue
			}
			var missed []string
			matters := !reflect.DeepEqual(control, assessed(m.object))
			if before, after := publish(m.object); matters && before == after {
				missed = []string{"node"}
			}
			lost.note(name, "daemonset"+m.path, matters, missed)
		}
	}
	lost.judge(t)
}

// TestEachFieldOfAPolicyThatMattersWakes: see TestEachFieldOfANodeThatMattersWakes. A pass reads the whole spec, and
// the predicate compares the whole spec: here are the metadata and the status.
func TestEachFieldOfAPolicyThatMattersWakes(t *testing.T) {
	var lost wakeups
	o := newOperator()
	o.makeReady(o.addNodes(0, 2))
	stored := &v1.ClusterPolicy{}
	must(o.Get(context.Background(), client.ObjectKey{Name: "cluster-policy"}, stored))
	policy := stored.DeepCopy()
	policy.Labels, policy.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b", labels.ChartNotes: "a: b"}
	pass := func(of *v1.ClusterPolicy) (what [3]any) {
		o.put(of.DeepCopy())
		o.advance(11 * time.Second)
		before := maps.Clone(o.writes)
		o.reconcileAll()
		return [3]any{maps.Equal(before, o.writes), o.fleet.Basis().Version, o.policyStatus().Conditions}
	}
	settle := func() (at [3]any) {
		for range 3 {
			at = pass(policy)
		}
		must(o.Get(context.Background(), client.ObjectKey{Name: "cluster-policy"}, stored))
		policy.Status = stored.DeepCopy().Status
		return at
	}
	predicates := predicate.Or(cachefilter.PolicyChanges(), cachefilter.PolicyReverts(o.pass.Status.Wrote))
	settle()
	changed := mutants(policy)
	for path, change := range map[string]func(*v1.ClusterPolicy){
		"/metadata/finalizers of others": func(p *v1.ClusterPolicy) { p.Finalizers = append(p.Finalizers, "example.com/a") },
		"/metadata/deletionTimestamp": func(p *v1.ClusterPolicy) {
			p.DeletionTimestamp, p.Generation = new(metav1.NewTime(o.clock.Now())), p.Generation+1
		},
	} {
		deleted := policy.DeepCopy()
		change(deleted)
		changed = append(changed, mutant[*v1.ClusterPolicy]{path, deleted})
	}
	for _, m := range changed {
		if strings.HasPrefix(m.path, "/spec") || m.object.Name != policy.Name || m.object.Namespace != "" {
			continue
		}
		control := settle()
		m.object.Status.Conditions = policy.Status.Conditions
		passes := predicates.Update(event.UpdateEvent{ObjectOld: policy.DeepCopy(), ObjectNew: m.object.DeepCopy()})
		matters := !reflect.DeepEqual(control, pass(m.object))
		var missed []string
		if matters && !passes {
			missed = []string{"clusterpolicy"}
		}
		lost.note("", "policy"+m.path, matters, missed)
	}
	lost.judge(t)
}

// TestEachFieldOfAReferenceThatMattersWakes: see TestEachFieldOfANodeThatMattersWakes. What a pass knows of a ConfigMap
// or Secret is its Content.
func TestEachFieldOfAReferenceThatMattersWakes(t *testing.T) {
	var lost wakeups
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"a": "b"}}
	plugin := "version: v1\nflags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n    resources:\n" +
		"    - name: nvidia.com/gpu\n      replicas: 4\n"
	configs := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{
		"default": plugin, "other": "a", labels.GPUClientsKey: "version: v1",
		labels.MIGLayoutsKey:      "version: v1\nmig-configs:\n  a:\n  - devices: all\n    mig-enabled: false\n",
		labels.ExporterMetricsKey: "DCGM_FI_DEV_GPU_TEMP, gauge, temperature",
	}, BinaryData: map[string][]byte{"binary": []byte("a")}}
	secret := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{
		labels.LicenceTokenKey: []byte("a"), "other": []byte("b"),
	}}
	for _, m := range mutants(configs) {
		lost.noteReference(configs, m.object, "configmap"+m.path,
			observe.ConfigMapContent(configs), observe.ConfigMapContent(m.object))
	}
	for _, m := range mutants(secret) {
		lost.noteReference(secret, m.object, "secret"+m.path,
			observe.SecretContent(secret), observe.SecretContent(m.object))
	}
	lost.judge(t)
}

func (w *wakeups) noteReference(before, after client.Object, path string, was, is operand.Content) {
	var missed []string
	matters := !reflect.DeepEqual(was, is)
	old, err := observe.TrimReference(before.DeepCopyObject())
	must(err)
	changed, err := observe.TrimReference(after.DeepCopyObject())
	must(err)
	e := event.UpdateEvent{ObjectOld: as[client.Object](old), ObjectNew: as[client.Object](changed)}
	if matters && !observe.ContentChanges().Update(e) {
		missed = []string{"clusterpolicy"}
	}
	w.note("", path, matters, missed)
}
