package status

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/text"
)

const (
	// maxPools is how many driver pools the API takes.
	maxPools = 64
	// maxPoolMessage bounds the message of a node pool.
	maxPoolMessage = 256
	// maxVersion bounds the version of a driver.
	maxVersion = 256
)

// pools tells of the driver pools.
func pools(pass Pass, nodes []node) []v1.PoolStatus {
	images, ready := map[string]string{}, map[string]int32{}
	for _, step := range pass.Plan.Steps {
		for _, instance := range step.Instances {
			if instance.Pool != "" {
				images[instance.Pool] = instance.Image
			}
		}
	}
	for i := range nodes {
		if nodes[i].State == readiness.Ready && !nodes[i].Excluded {
			ready[nodes[i].DriverPool]++
		}
	}
	var result []v1.PoolStatus
	for _, pool := range pass.Plan.Pools {
		result = append(result, v1.PoolStatus{
			Name: pool.Name, NodePool: pool.NodePool, Nodes: int32(pool.Nodes), Ready: ready[pool.Name], Image: images[pool.Name],
		})
	}
	return result[:min(len(result), maxPools)]
}

// nodePools tells of the pools of the spec. The nodes are sorted, worst first.
func nodePools(pass Pass, nodes []node) []v1.NodePoolStatus {
	var result []v1.NodePoolStatus
	for i := range pass.Plan.NodePools {
		pool := &pass.Plan.NodePools[i]
		entry := v1.NodePoolStatus{Name: pool.Name, DriverVersion: text.Truncate(pool.DriverVersion, maxVersion)}
		var worst *node
		for j := range nodes {
			node := &nodes[j]
			if node.NodePool != pool.Name || node.Excluded {
				continue
			}
			entry.Nodes++
			if node.State == readiness.Ready {
				entry.Ready++
			}
			if worst == nil && (node.State != readiness.Ready || node.Outdated) {
				worst = node
			}
		}
		switch {
		case pool.Refused.Choice != operand.Install:
			entry.Reason, entry.Message = pool.Refused.Reason, text.Truncate(pool.Refused.Message, maxPoolMessage)
		case worst != nil:
			entry.Reason = worst.Reason
			entry.Message = fmt.Sprintf("%d of %d nodes are ready; %s: stage %s, %s", entry.Ready, entry.Nodes, worst.Facts.Name, worst.Stage, worst.Reason)
		}
		result = append(result, entry)
	}
	return result
}

// wrongNodePool tells of a pool whose nodes cannot have what it asks for; it holds up no other.
func wrongNodePool(pass Pass, _ v1.ClusterPolicyStatus) (finding, bool) {
	if refused, is := refusedPool(pass, false); is {
		return bad(refused.Reason, refused.Message)
	}
	return finding{}, false
}

// waitingNodePool tells of a pool that names what does not exist yet.
func waitingNodePool(pass Pass, _ v1.ClusterPolicyStatus) (finding, bool) {
	refused, is := refusedPool(pass, true)
	return finding{reason: v1.ReasonOperandNotReady, message: refused.Message, progressing: true}, is
}

func refusedPool(pass Pass, missing bool) (operand.Decision, bool) {
	for i := range pass.Plan.NodePools {
		refused := pass.Plan.NodePools[i].Refused
		if refused.Choice != operand.Install && (refused.Reason == v1.ReasonReferenceMissing) == missing {
			return refused, true
		}
	}
	return operand.Decision{}, false
}
