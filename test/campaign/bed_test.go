package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
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
	// tenant is a namespace of users.
	tenant = "tenant"
	// cordoned is a node that a user has taken out of service.
	cordoned = "node-1"
	// eventually is how long to wait for what takes no fault long.
	eventually = time.Minute
)

// scheme knows all kinds that are read and written here.
var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1.AddToScheme(scheme))
	return scheme
}()

// bed is a control plane that points run on, one after another.
type bed struct {
	cluster *cluster.Cluster
	sim     *simulator.Simulator
	// client has all rights; quiet is the same, and not in the audit log.
	client client.Client
	quiet  client.WithWatch
	stop   func()
}

// seeds are objects of users, which nobody touches. One of them looks like one of the operator's to who looks at labels
// alone.
func seeds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "users-own"}, Data: map[string]string{"key": "value"}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "users-lookalike", Labels: map[string]string{
				labels.Operand: "device-plugin", labels.ManagedBy: labels.ManagedByValue,
			}},
			Data: map[string]string{"key": "value"},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "users-elsewhere", Labels: map[string]string{labels.Operand: "driver"}},
		},
		&nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "users-runtime", Labels: map[string]string{labels.Operand: "runtime-classes", labels.ManagedBy: labels.ManagedByValue}},
			Handler:    "runc",
		},
		noPods(metav1.ObjectMeta{Namespace: tenant, Name: "users-agent", Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue}}),
	}
}

// noPods is a DaemonSet of somebody else's that no node is for.
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

// newBed starts a control plane with what the operator needs installed, and objects of users.
func newBed(ctx context.Context) (*bed, error) {
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c, err := cluster.Start(starting, cluster.Options{})
	if err != nil {
		return nil, err
	}
	b := &bed{cluster: c}
	if err := b.prepare(starting, ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return b, nil
}

func (b *bed) prepare(ctx, lasting context.Context) error {
	if err := b.install(ctx); err != nil {
		return err
	}
	var err error
	if b.client, err = client.New(b.cluster.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if b.quiet, err = client.NewWithWatch(b.cluster.SimulatorConfig, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	timing := simulator.DefaultTiming().Scale(0.1)
	b.sim, err = simulator.New(simulator.Options{Config: b.cluster.SimulatorConfig, Timing: &timing, Seed: 1})
	if err != nil {
		return err
	}
	b.stop = b.sim.Stop
	if err := b.sim.Start(lasting); err != nil {
		return err
	}
	if err := b.quiet.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}); err != nil {
		return err
	}
	for _, seed := range seeds() {
		if err := b.quiet.Create(ctx, seed); err != nil {
			return fmt.Errorf("create %s: %w", seed.GetName(), err)
		}
	}
	return b.seedsAreObserved(ctx)
}

// seedsAreObserved waits for what controllers write to the seeds, such as the status and annotation of a DaemonSet.
func (b *bed) seedsAreObserved(ctx context.Context) error { return b.isObserved(ctx, "users-agent") }

// isObserved waits until the DaemonSet controller has seen a DaemonSet of the tenant.
func (b *bed) isObserved(ctx context.Context, name string) error {
	return await(ctx, "DaemonSet "+name+" to be observed", func() error {
		ds := &appsv1.DaemonSet{}
		if err := b.quiet.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, ds); err != nil {
			return err
		}
		if ds.Status.ObservedGeneration == 0 {
			return errors.New("it is not")
		}
		return nil
	})
}

// controllersFollow waits until the DaemonSet controller has seen everything that was written before. After an outage it
// is behind, and makes pods for DaemonSets that are gone.
func (b *bed) controllersFollow(ctx context.Context) error {
	canary := noPods(metav1.ObjectMeta{Namespace: tenant, Name: "canary"})
	if err := b.quiet.Create(ctx, canary); err != nil {
		return fmt.Errorf("create the canary: %w", err)
	}
	return errors.Join(b.isObserved(ctx, canary.Name), b.quiet.Delete(ctx, canary))
}

// install puts in place what an installation brings: definitions, roles, accounts.
func (b *bed) install(ctx context.Context) error {
	return cluster.Install(ctx, b.cluster.SimulatorConfig, filepath.Join(repo, "config/default"))
}

// close ends the control plane.
func (b *bed) close() error {
	if b.stop != nil {
		b.stop()
	}
	return b.cluster.Stop()
}

// addNode makes a GPU node on which users have labels, annotations and taints.
func (b *bed) addNode(ctx context.Context, w *workload, number int) error {
	name := nodeName(number)
	all := map[string]string{invariant.UserPrefix + "team": "hpc"}
	maps.Copy(all, w.labels)
	_, err := b.sim.AddNode(ctx, simulator.NodeSpec{
		Name: name, Labels: all,
		Annotations:   map[string]string{invariant.UserPrefix + "note": "kept"},
		Taints:        []corev1.Taint{{Key: invariant.UserPrefix + "soft", Value: "x", Effect: corev1.TaintEffectPreferNoSchedule}},
		Unschedulable: name == cordoned,
	})
	return err
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

// patch merges JSON into an object.
func (b *bed) patch(ctx context.Context, object client.Object, text string) error {
	return b.quiet.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(text)))
}

// edit reads an object, changes it and writes it, again where another has written it meanwhile.
func edit[T client.Object](ctx context.Context, c client.Client, object T, change func(T)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return c.Update(ctx, object)
	})
}

// samplePolicy is the policy that the project shows its users.
func samplePolicy() (*v1.ClusterPolicy, error) {
	text, err := os.ReadFile(filepath.Join(repo, "config/samples/clusterpolicy.yaml"))
	if err != nil {
		return nil, err
	}
	policy := &v1.ClusterPolicy{}
	return policy, yaml.UnmarshalStrict(text, policy)
}

func (b *bed) policy(ctx context.Context) (*v1.ClusterPolicy, error) {
	policy := &v1.ClusterPolicy{}
	return policy, b.quiet.Get(ctx, client.ObjectKey{Name: policyName}, policy)
}

// empty takes the cluster back to what newBed made, without waiting for the garbage collector or for kubelets.
func (b *bed) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := b.deleteAll(ctx); err != nil {
		return err
	}
	if err := b.controllersFollow(ctx); err != nil {
		return err
	}
	return b.deleteAll(ctx)
}

// deleteAll deletes all nodes, pods and objects of the stack, until none are left.
func (b *bed) deleteAll(ctx context.Context) error {
	now := client.GracePeriodSeconds(0)
	return await(ctx, "the cluster to be empty", func() error {
		err := errors.Join(
			b.quiet.DeleteAllOf(ctx, &v1.ClusterPolicy{}),
			b.quiet.DeleteAllOf(ctx, &appsv1.DaemonSet{}, client.InNamespace(namespace)),
			b.quiet.DeleteAllOf(ctx, &corev1.Node{}),
			b.quiet.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), now),
		)
		if err != nil {
			return err
		}
		left, err := b.leftovers(ctx)
		if err != nil {
			return err
		}
		for _, object := range left {
			_ = b.quiet.Delete(ctx, object)
		}
		if len(left) > 0 {
			return fmt.Errorf("%d objects are left, such as %s", len(left), left[0].GetName())
		}
		return nil
	})
}

// leftovers are the objects that are there because of the operator: all nodes and pods, and what a policy controls.
func (b *bed) leftovers(ctx context.Context) ([]client.Object, error) {
	world, err := history.Look(ctx, b.quiet)
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

// await tries until it succeeds.
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
