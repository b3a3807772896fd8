package node

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// planning keeps what looks at nodes have in common: the policy's spec with its defaults, and what it decides for all
// nodes. A thousand nodes that come up are looked at many times each. It may be lost at any time.
type planning struct {
	mu sync.Mutex
	// asked is what the policy asks for that was looked at last.
	asked *asked
	// plan is for asked, with these contents and images; nil for none yet.
	contents map[operand.Reference]operand.Content
	images   map[string]string
	plan     *plan.Plan
}

// asked is what a policy asks for. It is not to be changed.
type asked struct {
	uid types.UID
	// written is what the user has written, and spec that with its defaults.
	written v1.ClusterPolicySpec
	spec    effective.Spec
	// uses are the objects of others that the spec refers to.
	uses []operand.Reference
}

// of is what a policy asks for. The spec is compared, and not its version alone: around a change of the definition the
// same version may be shown with other fields.
func (p *planning) of(catalogue []operand.Operand, policy *v1.ClusterPolicy) *asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil || p.asked.uid != policy.UID || !reflect.DeepEqual(p.asked.written, policy.Spec) {
		spec := effective.Of(policy.Spec)
		p.asked = &asked{uid: policy.UID, written: policy.Spec, spec: spec, uses: operand.Uses(catalogue, operand.Input{Spec: spec})}
		p.plan = nil
	}
	return p.asked
}

// planned is the plan for an input, which is of what is asked for. It is not to be changed.
func (p *planning) planned(catalogue []operand.Operand, of *asked, input operand.Input) plan.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan != nil && p.asked == of && reflect.DeepEqual(p.contents, input.Contents) && reflect.DeepEqual(p.images, input.DriverToolkit) {
		return *p.plan
	}
	computed := plan.ForSpec(catalogue, input)
	if p.asked == of {
		p.contents, p.images, p.plan = input.Contents, input.DriverToolkit, &computed
	}
	return computed
}

// input is what the plan for one node needs.
func (r *Reconciler) input(ctx context.Context, asked *asked, facts operand.NodeFacts) (operand.Input, error) {
	in := operand.Input{Spec: asked.spec, Namespace: r.Namespace}
	if in.UsesDriverToolkit(facts) {
		images, err := r.DriverToolkit.Images(ctx)
		if err != nil {
			// The pass logs it, too, and an event tells when it is over.
			log.FromContext(ctx).V(1).Info("The driver toolkit cannot be read", "reason", err.Error())
		}
		in.DriverToolkit = images
	}
	var err error
	in.Contents, err = observe.Contents(ctx, r.References, r.Namespace, asked.uses)
	return in, err
}
