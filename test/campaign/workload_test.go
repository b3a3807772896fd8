package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// workload is the user's part of a run.
type workload struct {
	id, what string
	// nodes is the initial number of nodes.
	nodes int
	// labels are further labels of the nodes.
	labels map[string]string
	// policy changes the default sample before its creation.
	policy func(*v1.ClusterPolicy)
	// change is done once the stack is ready; nil means no change.
	change func(context.Context, *run) error
	// maxParallel is how many nodes may be in a driver upgrade at a time; 0 for a workload without one.
	maxParallel int
	// ended returns why the workload has not ended.
	ended func(context.Context, *run) error
	// mayGo reports the pods that the change deletes.
	mayGo func(operand, node string) bool
}

const fewNodes = 3

func respec(ctx context.Context, r *run, change func(*v1.ClusterPolicySpec)) error {
	return edit(ctx, r.quiet, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}},
		func(p *v1.ClusterPolicy) { change(&p.Spec) })
}

func allReady(nodes int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error { return r.isReady(ctx, nodes) }
}

var install = &workload{
	id: "I", what: "install the stack", nodes: fewNodes, ended: allReady(fewNodes),
}

// rest is for actions of others on a ready stack.
var rest = &workload{
	id: "rest", what: "no change", nodes: fewNodes, ended: allReady(fewNodes),
	change: func(context.Context, *run) error { return nil },
}

// mig is rest with GPUs that support MIG, so that the MIG manager and its ConfigMaps exist.
var mig = &workload{
	id: "mig", what: "no change, with a MIG manager", nodes: fewNodes, ended: allReady(fewNodes),
	labels: map[string]string{labels.MIGCapable: "true"},
	change: func(context.Context, *run) error { return nil },
}

var specChange = &workload{
	id: "G", what: "change a variable of the device plugin", nodes: fewNodes,
	change: func(ctx context.Context, r *run) error {
		return respec(ctx, r, func(spec *v1.ClusterPolicySpec) {
			spec.DevicePlugin = &v1.DevicePluginSpec{
				ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "EXAMPLE", Value: "changed"}}},
			}
		})
	},
	ended: func(ctx context.Context, r *run) error {
		ds := &appsv1.DaemonSet{}
		if err := r.quiet.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pluginName}, ds); err != nil {
			return err
		}
		if ds.Status.UpdatedNumberScheduled != fewNodes || ds.Status.ObservedGeneration != ds.Generation ||
			ds.Status.NumberAvailable != fewNodes {
			return fmt.Errorf("%s is not rolled out: %+v", pluginName, ds.Status)
		}
		return r.isReady(ctx, fewNodes)
	},
	mayGo: func(operand, _ string) bool { return operand == "device-plugin" },
}

const pluginName = "nvidia-device-plugin-daemonset"

// Nodes of the workload S.
const (
	before, most, finally = 6, 12, 4
)

var scale = &workload{
	id: "S", what: "6 nodes become 12, then 4", nodes: before,
	change: func(ctx context.Context, r *run) error {
		for number := before; number < most; number++ {
			if err := r.addNode(ctx, r.workload, number); err != nil {
				return err
			}
		}
		if err := r.awaitWithin(ctx, convergeTime, "12 nodes", func() error { return r.isReady(ctx, most) }); err != nil {
			return err
		}
		for number := finally; number < most; number++ {
			if err := r.removeNode(ctx, number); err != nil {
				return err
			}
		}
		return nil
	},
	ended: allReady(finally),
}

// removeNode deletes a node with its pods, as no kubelet terminates them any more.
func (r *run) removeNode(ctx context.Context, number int) error {
	name := nodeName(number)
	if err := r.quiet.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	pods := &corev1.PodList{}
	if err := r.quiet.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != name {
			continue
		}
		if err := r.quiet.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s: %w", pods.Items[i].Name, err)
		}
	}
	return nil
}

var disable = &workload{
	id: "D", what: "disable GPU Feature Discovery, then enable it", nodes: fewNodes,
	change: func(ctx context.Context, r *run) error {
		if err := respec(
			ctx, r, func(spec *v1.ClusterPolicySpec) { spec.GFD = &v1.GFDSpec{Enabled: new(false)} },
		); err != nil {
			return err
		}
		if err := r.awaitWithin(
			ctx, convergeTime, "it to be removed", func() error { return r.operandIs(ctx, discovery, v1.OperandDisabled, 0) },
		); err != nil {
			return err
		}
		return respec(ctx, r, func(spec *v1.ClusterPolicySpec) { spec.GFD = nil })
	},
	ended: func(ctx context.Context, r *run) error {
		if err := r.operandIs(ctx, discovery, v1.OperandReady, fewNodes); err != nil {
			return err
		}
		return r.isReady(ctx, fewNodes)
	},
	mayGo: func(operand, _ string) bool { return operand == discovery },
}

const discovery = "gpu-feature-discovery"

// operandIs returns why an operand is not in a state with this number of pods.
func (r *run) operandIs(ctx context.Context, name string, state v1.OperandState, pods int) error {
	policy, err := r.policy(ctx)
	if err != nil {
		return err
	}
	found := &corev1.PodList{}
	if err := r.quiet.List(
		ctx, found, client.InNamespace(namespace), client.MatchingLabels{labels.Operand: name},
	); err != nil {
		return err
	}
	if len(found.Items) != pods {
		return fmt.Errorf("%s has %d pods, want %d", name, len(found.Items), pods)
	}
	for _, operand := range policy.Status.Operands {
		if operand.Name == name && operand.State == state && policy.Status.ObservedGeneration == policy.Generation {
			return nil
		}
	}
	return fmt.Errorf("the status of %s is not %s", name, state)
}

var remove = &workload{
	id: "X", what: "delete the policy", nodes: fewNodes,
	change: func(ctx context.Context, r *run) error {
		return r.quiet.Delete(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
	},
	ended: gone,
	mayGo: func(string, string) bool { return true },
}

// gone returns an error with what is left of the stack.
func gone(ctx context.Context, r *run) error {
	if _, err := r.policy(ctx); !apierrors.IsNotFound(err) {
		return errors.Join(errors.New("the policy exists"), err)
	}
	left, err := r.leftovers(ctx)
	if err != nil {
		return err
	}
	for _, object := range left {
		node, is := object.(*corev1.Node)
		if !is {
			return fmt.Errorf("%T %s is left", object, object.GetName())
		}
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				return fmt.Errorf("label %s is left on %s", key, node.Name)
			}
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == labels.ConditionGPUReady {
				return fmt.Errorf("the condition is left on %s", node.Name)
			}
		}
	}
	return nil
}

func summary(policy *v1.ClusterPolicy) string {
	if policy == nil {
		return ""
	}
	text, err := yaml.Marshal(policy.Status)
	if err != nil {
		return err.Error()
	}
	return tail(string(text), 80)
}
