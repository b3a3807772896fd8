package status

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

const (
	// maxPools is the limit of the API for status.pools.
	maxPools = 64
	// maxNodePoolMessage bounds the message of a node pool.
	maxNodePoolMessage = 256
	// maxVersion bounds the version of a driver.
	maxVersion = 256
)

// driverPools returns the status of the driver pools.
func driverPools(in Input, nodes []node) []v1.PoolStatus {
	images, ready := map[string]string{}, map[string]int32{}
	for _, step := range in.Plan.Steps {
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
	for _, pool := range in.Plan.Pools {
		result = append(result, v1.PoolStatus{
			Name:     pool.Name,
			NodePool: pool.NodePool,
			Nodes:    int32(pool.Nodes),
			Ready:    ready[pool.Name],
			Image:    images[pool.Name],
		})
	}
	return result[:min(len(result), maxPools)]
}

// nodePools returns the status of spec.nodePools. The nodes are sorted by severity.
func nodePools(in Input, nodes []node) []v1.NodePoolStatus {
	var result []v1.NodePoolStatus
	for i := range in.Plan.NodePools {
		nodePool := &in.Plan.NodePools[i]
		entry := v1.NodePoolStatus{Name: nodePool.Name, DriverVersion: text.Truncate(nodePool.DriverVersion, maxVersion)}
		var worst *node
		for j := range nodes {
			node := &nodes[j]
			if node.NodePool != nodePool.Name || node.Excluded {
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
		case nodePool.Decision.Choice != operand.Install:
			entry.Reason, entry.Message = nodePool.Decision.Reason, text.Truncate(nodePool.Decision.Message, maxNodePoolMessage)
		case worst != nil:
			entry.Reason = worst.Reason
			entry.Message = fmt.Sprintf("%d of %d nodes are ready; %s: stage %s, %s",
				entry.Ready, entry.Nodes, worst.Facts.Name, worst.Stage, worst.Reason)
		}
		result = append(result, entry)
	}
	return result
}

// checkNodePoolSpecs reports a refused node pool. It blocks no other node pool.
func checkNodePoolSpecs(in Input, _ v1.ClusterPolicyStatus) *finding {
	if refused := refusedNodePool(in, false); refused != nil {
		return stalledBy(refused.Reason, refused.Message)
	}
	return nil
}

// checkNodePoolReferences reports a node pool that refers to a missing object.
func checkNodePoolReferences(in Input, _ v1.ClusterPolicyStatus) *finding {
	if refused := refusedNodePool(in, true); refused != nil {
		return &finding{reason: v1.ReasonOperandNotReady, message: refused.Message, progressing: true}
	}
	return nil
}

// refusedNodePool returns the decision about the first node pool that is refused because a reference is missing, or
// for any other reason.
func refusedNodePool(in Input, referenceMissing bool) *operand.Decision {
	for i := range in.Plan.NodePools {
		decision := &in.Plan.NodePools[i].Decision
		if decision.Choice != operand.Install && (decision.Reason == v1.ReasonReferenceMissing) == referenceMissing {
			return decision
		}
	}
	return nil
}
