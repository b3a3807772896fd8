package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// ForeignPluginTime is how long a node must offer GPUs without the operator's device plugin before another one is
// reported: a kubelet withdraws what a plugin has advertised, and reports that, within seconds.
const ForeignPluginTime = 2 * time.Minute

// foreignSince returns since when the node has offered GPUs without the operator's device plugin, which has not started
// on it; zero if it does not.
func (in Input) foreignSince() time.Time {
	if unstartedPlugin(in) == "" || readiness.Kubelet(in.Node).State != readiness.Ready ||
		readiness.Allocatable(in.Node).State != readiness.Ready {
		return time.Time{}
	}
	return cmp.Or(in.ForeignSince, in.Now)
}

// findNewPlugin finds when another device plugin is reported.
func findNewPlugin(in Input, so Assessment) finding {
	if reportAt := so.ForeignSince.Add(ForeignPluginTime); in.Now.Before(reportAt) {
		return verdictAt("", "", readiness.Verdict{Until: reportAt})
	}
	return finding{}
}

// findForeignPlugin finds another device plugin. What it advertises is not validated: the node stays at the stage that
// it has reached.
func findForeignPlugin(in Input, so Assessment) finding {
	if so.ForeignSince.IsZero() || in.Now.Before(so.ForeignSince.Add(ForeignPluginTime)) {
		return finding{}
	}
	plugin := unstartedPlugin(in)
	return verdictAt(v1.StageDevicePlugin, string(plugin), readiness.Verdict{
		State: readiness.Failed, Reason: v1.ReasonForeignDevicePlugin,
		Message: fmt.Sprintf("the node offers %s, but not by %s, which has not started: remove the other device plugin, or "+
			"set spec.devicePlugin.enabled to false", offered(in.Node), plugin),
	})
}

// unstartedPlugin returns the operand of the device plugin if it is expected on the node and has never started there:
// the main containers of its pod have not, or the node has not got the label that selects it yet. Empty otherwise.
func unstartedPlugin(in Input) operand.Name {
	for _, onNode := range in.NodePlan.Essential {
		if onNode.Stage != v1.StageDevicePlugin || onNode.Expectation != plan.Expected {
			continue
		}
		pod := in.Pods[onNode.Operand]
		if pod == nil {
			if in.Node.Labels[onNode.Operand.DeployLabel()] == "" {
				return onNode.Operand
			}
			continue
		}
		if pod.DeletionTimestamp == nil && len(pod.Status.ContainerStatuses) > 0 &&
			!slices.ContainsFunc(pod.Status.ContainerStatuses, hasStarted) {
			return onNode.Operand
		}
	}
	return ""
}

func hasStarted(status corev1.ContainerStatus) bool {
	return status.Ready || status.State.Running != nil || status.State.Terminated != nil ||
		status.LastTerminationState.Terminated != nil
}

// offered describes the GPUs that are allocatable on the node.
func offered(node *corev1.Node) string {
	var found []string
	for name, quantity := range node.Status.Allocatable {
		if readiness.Advertises(node, name) && quantity.Sign() > 0 {
			found = append(found, fmt.Sprintf("%s %s", quantity.String(), name))
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}
