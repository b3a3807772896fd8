package assess

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// migLayout returns the verdict on a MIG layout that is being applied, that could not be applied, or whose devices the
// node does not advertise; zero if there is nothing to report.
func (in Input) migLayout() readiness.Verdict {
	if in.NodePlan.Partitioner == "" {
		return readiness.Verdict{}
	}
	return cmp.Or(in.migDraining(), in.migVerdict(), in.migHeld())
}

// findMIG finds what there is to report about the MIG layout. While operands are paused, the stage is that of the first
// paused one. A change that has not paused them yet leaves the node ready.
func findMIG(in Input, so Assessment) finding {
	found := verdictAt(v1.StageAllocatable, string(in.NodePlan.Partitioner), in.layout)
	switch {
	case so.Reason == v1.ReasonOperandPaused:
		found.Stage = so.Stage
		found.Verdict = cmp.Or(found.Verdict, in.migAbandoned(operand.Name(so.Operand)))
	case found.Reason == v1.ReasonMIGConfigPending:
		return finding{}
	}
	return found
}

// migVerdict returns the verdict on the layout that the node requests; it has no reason if there is nothing to report.
func (in Input) migVerdict() readiness.Verdict {
	layout := in.Node.Labels[labels.MIGConfig]
	switch state := in.Node.Labels[labels.MIGConfigState]; {
	case state == labels.MIGStatePending || state == labels.MIGStateRebooting:
		return in.migChanging(layout, state)
	case in.NodePlan.MIGLayout != "" && state != labels.MIGStateSuccess:
		// Also before the MIG manager has noticed.
		return readiness.Verdict{
			State: readiness.Failed, Reason: v1.ReasonMIGConfigFailed, Message: in.NodePlan.MIGLayout,
		}
	case layout == "":
		// Whatever was requested before has ended.
	case state == labels.MIGStateFailed:
		return in.migFailed(layout)
	case state == labels.MIGStateSuccess:
		return migMismatch(in, layout)
	}
	return readiness.Verdict{}
}

// migChanging returns the verdict on a node whose MIG layout is being changed.
func (in Input) migChanging(layout, state string) readiness.Verdict {
	verdict, tenants := migPending(layout), in.tenants()
	switch {
	case state == labels.MIGStateRebooting:
		verdict.Message += "; the node reboots for it"
	case tenants != "":
		verdict.Message += "; it fails unless " + tenants + " end"
	}
	return verdict
}

// migFailed returns the verdict on a node whose MIG layout could not be applied.
func (in Input) migFailed(layout string) readiness.Verdict {
	cause := in.logOf(in.NodePlan.Partitioner)
	if tenants := in.tenants(); tenants != "" {
		cause = fmt.Sprintf(" while %s used GPUs%s", tenants, cause)
	}
	verdict := readiness.Verdict{
		State: readiness.Failed, Reason: v1.ReasonMIGConfigFailed,
		Message:     fmt.Sprintf("MIG layout %s could not be applied%s", layout, cause),
		DetailLasts: in.MIGCauseSought,
	}
	if in.MIGCause != "" {
		verdict.Detail = `the MIG manager: "` + in.MIGCause + `"`
	}
	return verdict
}

// migAbandoned returns the verdict on an operand that a MIG manager has paused which is no longer to run on the node;
// zero if none has. It is resumed after the same time as one whose change does not end, as another MIG manager than the
// operator's may have paused it.
func (in Input) migAbandoned(paused operand.Name) readiness.Verdict {
	state := in.Node.Labels[labels.MIGConfigState]
	if in.NodePlan.Partitioner != "" || state != labels.MIGStatePending && state != labels.MIGStateRebooting ||
		in.Node.Labels[paused.DeployLabel()] != labels.DeployPausedForMIG {
		return readiness.Verdict{}
	}
	verdict := migPending(in.Node.Labels[labels.MIGConfig])
	verdict.Message += ", but no MIG manager is to run on the node"
	return verdict
}

// IsMIGOverdue reports whether a change of the MIG layout has taken longer than its deadline.
func (a *Assessment) IsMIGOverdue() bool { return a.Overdue && a.Reason == v1.ReasonMIGConfigPending }

// migPending returns the verdict on a node whose MIG layout is being changed. Its label may have been removed since.
func migPending(layout string) readiness.Verdict {
	verdict := readiness.Verdict{
		State: readiness.Progressing, Reason: v1.ReasonMIGConfigPending,
		Message: fmt.Sprintf("MIG layout %s is being applied", layout),
	}
	if layout == "" {
		verdict.Message = fmt.Sprintf("a MIG layout is being applied, and the label %s was removed", labels.MIGConfig)
	}
	return verdict
}

// drain returns the record of a drain of the node for a MIG layout; zero for none. No layout is requested while the
// record cannot be read.
func (in Input) drain() (upgrade.Drain, error) {
	text, recorded := in.Node.Annotations[labels.MIGDrain]
	if !recorded {
		return upgrade.Drain{}, nil
	}
	drain, err := upgrade.DecodeDrain(text)
	if err != nil || drain.UID != in.Node.UID {
		return upgrade.Drain{}, err
	}
	return *drain, nil
}

// migDraining returns the verdict on a node whose pods are evicted for a MIG layout; zero on another one.
func (in Input) migDraining() readiness.Verdict {
	drain, err := in.drain()
	if err != nil || !drain.State.Evicts() {
		return readiness.Verdict{}
	}
	what := cmp.Or(in.tenants(), "the pods that use the GPUs")
	verdict := readiness.Verdict{State: readiness.Ready, Reason: v1.ReasonMIGConfigDraining}
	switch {
	case drain.Message != "":
		verdict.Message = fmt.Sprintf("%s; the node is drained for MIG layout %s", drain.Message, drain.Layout)
	case drain.State == upgrade.DrainJobs:
		verdict.Message = fmt.Sprintf("the node is cordoned for MIG layout %s, which waits for the jobs of "+
			"upgradePolicy.waitForCompletion to end", drain.Layout)
	default:
		verdict.Message = fmt.Sprintf("the node is cordoned for MIG layout %s, and evicts %s", drain.Layout, what)
	}
	return verdict
}

// migHeld returns the verdict on a node for which the operator wants another MIG layout than it requests; zero if it
// does not.
func (in Input) migHeld() readiness.Verdict {
	verdict := readiness.Verdict{State: readiness.Ready, Reason: v1.ReasonMIGConfigHeld, Message: in.NodePlan.MIGRefused}
	wanted := in.NodePlan.MIGWanted
	drain, err := in.drain()
	if err != nil {
		verdict.Message = "annotation " + labels.MIGDrain + " cannot be read: remove it, and uncordon the node unless " +
			"someone works on it"
		return verdict
	}
	switch tenants := in.tenants(); {
	case wanted == "" && verdict.Message == "":
		return readiness.Verdict{}
	case wanted == "":
	case drain.State == upgrade.DrainFailed && drain.Layout == wanted:
		verdict.Message = fmt.Sprintf("MIG layout %s waits for the pods that use the GPUs: %s", wanted, drain.Message)
	case tenants != "":
		verdict.Message = fmt.Sprintf("MIG layout %s waits for %s to end", wanted, tenants)
	default:
		verdict.Message = fmt.Sprintf("MIG layout %s waits for its turn by spec.driver.upgradePolicy", wanted)
	}
	return verdict
}

// tenants names the first of the pods that use GPUs of the node, empty for none.
func (in Input) tenants() string {
	if len(in.Tenants) == 0 {
		return ""
	}
	return "pods " + text.List(in.Tenants)
}

// migProfile is the profile in the name of a layout that partitions all GPUs alike, such as all-1g.10gb. Layouts of
// other names may mean anything.
var migProfile = regexp.MustCompile(`^all-([0-9]+g[.][0-9]+gb([.][a-z]+)*)$`)

// migMismatch compares the layout that was applied with what the node advertises. The verdict has no reason if they
// match, or if the name of the layout does not say what it has.
func migMismatch(in Input, layout string) readiness.Verdict {
	if in.leavesPlugin() {
		// Nothing of the stack advertises devices, or another device plugin does.
		return readiness.Verdict{}
	}
	verdict := readiness.Verdict{State: readiness.Progressing, Reason: v1.ReasonMIGConfigMismatch}
	if layout == labels.MIGAllDisabled {
		if name := firstMIGResource(in.Node); name != "" {
			verdict.Message = fmt.Sprintf("MIG is disabled, but the node still advertises %s", name)
			return verdict
		}
		return readiness.Verdict{}
	}
	profile := migProfile.FindStringSubmatch(layout)
	if profile == nil {
		return readiness.Verdict{}
	}
	resource := labels.ResourceMIGPrefix + profile[1]
	switch strategy := migStrategy(in); {
	case strategy == v1.MIGStrategyMixed && !advertises(in.Node, resource):
		verdict.Message = fmt.Sprintf("MIG layout %s is applied, but the node advertises no %s", layout, resource)
	case strategy == v1.MIGStrategyNone:
		verdict.State = readiness.Ready
		verdict.Message = fmt.Sprintf("MIG layout %s is applied, but no MIG device is advertised: set spec.mig.strategy to "+
			"mixed for %s, or to single", layout, resource)
	case strategy == v1.MIGStrategySingle && !isProduct(in.Node, profile[1]):
		verdict.Message = fmt.Sprintf("MIG layout %s is applied, but the label %s does not show it",
			layout, labels.GPUProduct)
	default:
		return readiness.Verdict{}
	}
	return verdict
}

// migStrategy returns the strategy of the node: what GPU Feature Discovery reports, as the device plugin may have it
// from a ConfigMap, or else that of the spec.
func migStrategy(in Input) v1.MIGStrategy {
	return cmp.Or(v1.MIGStrategy(in.Node.Labels[labels.MIGStrategy]), in.NodePlan.Spec.MIG.Strategy, v1.MIGStrategyNone)
}

// isProduct reports whether the product of the GPUs is a MIG device of the profile, or unknown.
func isProduct(node *corev1.Node, profile string) bool {
	product := node.Labels[labels.GPUProduct]
	return product == "" || strings.Contains(product, labels.ProductMIG+profile)
}

// firstMIGResource returns the first MIG resource by name that the node advertises, "" for none.
func firstMIGResource(node *corev1.Node) string {
	first := ""
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), labels.ResourceMIGPrefix) && readiness.Advertises(node, name) &&
			(first == "" || string(name) < first) {
			first = string(name)
		}
	}
	return first
}

// advertises reports whether the node advertises devices of the resource, shared ones included.
func advertises(node *corev1.Node, resource string) bool {
	for name := range node.Status.Capacity {
		plain, _ := strings.CutSuffix(string(name), labels.SharedResourceSuffix)
		if plain == resource && readiness.Advertises(node, name) {
			return true
		}
	}
	return false
}

// logOf returns where to read more about an operand on the node: empty if it has no pod there.
func (in Input) logOf(name operand.Name) string {
	pod := in.Pods[name]
	if pod == nil {
		return ""
	}
	return fmt.Sprintf(": see kubectl -n %s logs %s", pod.Namespace, pod.Name)
}
