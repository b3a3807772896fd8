package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/campaign/invariant"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	namespace  = cluster.OperatorNamespace
	account    = "gpu-operator"
	repo       = "../.."
	policyName = "cluster-policy"
	// tenant is a user's namespace.
	tenant = "tenant"
	// cordoned is a node that a user has cordoned.
	cordoned = "node-1"
	// eventually is the timeout of waits that faults do not delay.
	eventually = time.Minute
)

// scheme has all kinds that are read and written here.
var scheme = cluster.Scheme()

// env is a control plane on which points run sequentially.
type env struct {
	cluster *cluster.Cluster
	sim     *simulator.Simulator
	// client has all permissions; quiet is the same, but not in the audit log.
	client client.Client
	quiet  client.WithWatch
	stop   func()
}

// seeds returns objects of users, which no component may change. One of them has the labels of the operator's
// objects.
func seeds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "users-own"}, Data: map[string]string{"key": "value"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "users-lookalike", Labels: map[string]string{
				labels.Operand: "device-plugin", labels.ManagedBy: labels.ManagedByValue,
			}},
			Data: map[string]string{"key": "value"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: tenant, Name: "users-elsewhere", Labels: map[string]string{labels.Operand: "driver"},
			},
		},
		&nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{
				Name:   "users-runtime",
				Labels: map[string]string{labels.Operand: "runtime-classes", labels.ManagedBy: labels.ManagedByValue},
			},
			Handler: "runc",
		},
		noPods(metav1.ObjectMeta{
			Namespace: tenant, Name: "users-agent", Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
		}),
	}
}

// noPods returns a foreign DaemonSet that selects no node.
func noPods(meta metav1.ObjectMeta) *appsv1.DaemonSet {
	own := map[string]string{"app": "mine"}
	return &appsv1.DaemonSet{
		ObjectMeta: meta,
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: own},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: own}, Spec: corev1.PodSpec{
				Containers:   []corev1.Container{{Name: "main", Image: "example.com/mine:1"}},
				NodeSelector: map[string]string{"no": "node"},
			}},
		},
	}
}

func seedKeys() []history.Key {
	var keys []history.Key
	for _, object := range seeds() {
		kinds, _, err := scheme.ObjectKinds(object)
		utilruntime.Must(err)
		keys = append(keys, history.Key{Kind: kinds[0].Kind, Namespace: object.GetNamespace(), Name: object.GetName()})
	}
	return keys
}

// newEnv starts a control plane with the operator's installation, and objects of users.
func newEnv(ctx context.Context) (*env, error) {
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(starting, cluster.Options{})
	if err != nil {
		return nil, err
	}
	e := &env{cluster: c}
	if err := e.prepare(starting, ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return e, nil
}

func (e *env) prepare(ctx, lasting context.Context) error {
	if err := e.install(ctx); err != nil {
		return err
	}
	var err error
	if e.client, err = client.New(e.cluster.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if e.quiet, err = client.NewWithWatch(e.cluster.SimulatorConfig, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	timing := simulator.DefaultTiming().Scale(0.1)
	e.sim, err = simulator.New(simulator.Options{Config: e.cluster.SimulatorConfig, Timing: &timing, Seed: 1})
	if err != nil {
		return err
	}
	e.stop = e.sim.Stop
	if err := e.sim.Start(lasting); err != nil {
		return err
	}
	if err := e.quiet.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}); err != nil {
		return err
	}
	for _, seed := range seeds() {
		if err := e.quiet.Create(ctx, seed); err != nil {
			return fmt.Errorf("create %s: %w", seed.GetName(), err)
		}
	}
	return e.seedsAreObserved(ctx)
}

// seedsAreObserved waits for what controllers write to the seeds, such as the status and the annotation of a
// DaemonSet.
func (e *env) seedsAreObserved(ctx context.Context) error { return e.isObserved(ctx, "users-agent") }

// isObserved waits until the DaemonSet controller has observed a DaemonSet of the tenant.
func (e *env) isObserved(ctx context.Context, name string) error {
	return await(ctx, "DaemonSet "+name+" to be observed", func() error {
		ds := &appsv1.DaemonSet{}
		if err := e.quiet.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, ds); err != nil {
			return err
		}
		if ds.Status.ObservedGeneration == 0 {
			return errors.New("it is not")
		}
		return nil
	})
}

// controllersFollow waits until the DaemonSet controller has observed everything that was written before. After an
// outage it lags, and creates pods for deleted DaemonSets.
func (e *env) controllersFollow(ctx context.Context) error {
	canary := noPods(metav1.ObjectMeta{Namespace: tenant, Name: "canary"})
	if err := e.quiet.Create(ctx, canary); err != nil {
		return fmt.Errorf("create the canary: %w", err)
	}
	return errors.Join(e.isObserved(ctx, canary.Name), e.quiet.Delete(ctx, canary))
}

// install installs the definitions, roles and accounts.
func (e *env) install(ctx context.Context) error {
	return cluster.Install(ctx, e.cluster.SimulatorConfig, filepath.Join(repo, "config/default"))
}

// close ends the control plane.
func (e *env) close() error {
	if e.stop != nil {
		e.stop()
	}
	return e.cluster.Stop()
}

// addNode creates a GPU node with labels, annotations and taints of users.
func (e *env) addNode(ctx context.Context, w *workload, number int) error {
	name := nodeName(number)
	all := map[string]string{invariant.UserPrefix + "team": "hpc"}
	maps.Copy(all, w.labels)
	_, err := e.sim.AddNode(ctx, simulator.NodeSpec{
		Name: name, Labels: all,
		Annotations: map[string]string{invariant.UserPrefix + "note": "kept"},
		Taints: []corev1.Taint{
			{Key: invariant.UserPrefix + "soft", Value: "x", Effect: corev1.TaintEffectPreferNoSchedule},
		},
		Unschedulable: name == cordoned,
	})
	return err
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// patch merges JSON into an object.
func (e *env) patch(ctx context.Context, object client.Object, text string) error {
	return e.quiet.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(text)))
}

// edit reads an object, changes it and writes it, with a retry on conflict.
func edit[T client.Object](ctx context.Context, c client.Client, object T, change func(T)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return c.Update(ctx, object)
	})
}

func (e *env) policy(ctx context.Context) (*v1.ClusterPolicy, error) {
	policy := &v1.ClusterPolicy{}
	return policy, e.quiet.Get(ctx, client.ObjectKey{Name: policyName}, policy)
}

// empty resets the cluster to the state after newEnv, without waiting for the garbage collector or kubelets.
func (e *env) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := e.deleteAll(ctx); err != nil {
		return err
	}
	if err := e.controllersFollow(ctx); err != nil {
		return err
	}
	return e.deleteAll(ctx)
}

// deleteAll deletes all nodes, pods and objects of the stack, until none is left.
func (e *env) deleteAll(ctx context.Context) error {
	now := client.GracePeriodSeconds(0)
	return await(ctx, "the cluster to be empty", func() error {
		err := errors.Join(
			e.deletePolicies(ctx),
			e.quiet.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(namespace)),
			e.quiet.DeleteAllOf(ctx, &corev1.Node{}),
			e.quiet.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), now),
		)
		if err != nil {
			return err
		}
		left, err := e.leftovers(ctx)
		if err != nil {
			return err
		}
		for _, object := range left {
			_ = e.quiet.Delete(ctx, object)
		}
		if len(left) > 0 {
			return fmt.Errorf("%d objects are left, such as %s", len(left), left[0].GetName())
		}
		return nil
	})
}

// deletePolicies deletes all policies, without an operator that would remove their finalizers.
func (e *env) deletePolicies(ctx context.Context) error {
	policies := &v1.ClusterPolicyList{}
	if err := e.quiet.List(ctx, policies); err != nil {
		return err
	}
	var failures []error
	for i := range policies.Items {
		failures = append(failures,
			client.IgnoreNotFound(e.quiet.Delete(ctx, &policies.Items[i])),
			cluster.DropFinalizers(ctx, e.quiet, &policies.Items[i]))
	}
	return errors.Join(failures...)
}

// leftovers returns all nodes and pods, and the objects that a policy controls.
func (e *env) leftovers(ctx context.Context) ([]client.Object, error) {
	world, err := history.Look(ctx, e.quiet)
	if err != nil {
		return nil, err
	}
	var found []client.Object
	for key, object := range world {
		switch key.Kind {
		case history.Node, history.ClusterPolicy:
			found = append(found, object)
		case history.Pod:
			if key.Namespace == namespace {
				found = append(found, object)
			}
		case history.Namespace:
		default:
			if invariant.IsOurs(object) {
				found = append(found, object)
			}
		}
	}
	return found, nil
}

// await retries until the function succeeds.
func await(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
