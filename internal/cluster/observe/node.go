package observe

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// Facts returns the facts of a Node, which plans are computed from.
func Facts(node *corev1.Node) nodeinfo.Facts {
	facts := nodeinfo.Facts{
		Name:            node.Name,
		WasGPU:          node.Labels[labels.GPUPresent] == labels.True,
		ExcludedByLabel: node.Labels[labels.DeployOperands] == labels.False,
		Workload:        nodeinfo.Workload(node.Labels[labels.GPUWorkload]),
		OSID:            node.Labels[labels.DiscoveryOSID],
		OSVersion:       node.Labels[labels.DiscoveryOSVersion],
		Kernel:          node.Labels[labels.DiscoveryKernel],
		OSTree:          node.Labels[labels.DiscoveryOSTree],
		OSImage:         node.Status.NodeInfo.OSImage,
		Architecture:    node.Status.NodeInfo.Architecture,
		MIGCapable:      node.Labels[labels.MIGCapable],
		MPSCapable:      node.Labels[labels.MPSCapable],
		MIGWritten:      node.Annotations[labels.MIGConfigWritten],
		Product:         node.Labels[labels.GPUProduct],
		VGPUGuest:       node.Labels[labels.VGPUHostDriver] != "",
		Pool:            cmp.Or(node.Labels[labels.Pool], node.Labels[labels.DriverAnchor]),
		PoolKernel:      node.Labels[labels.PoolKernel],
		PoolCoreOS:      node.Labels[labels.PoolCoreOS],
		PoolNodePool:    node.Labels[labels.PoolNodePool],
		NodePool:        node.Labels[labels.NodePool],
		Layout:          node.Labels[labels.Layout],
		Labels:          node.Labels,
		Deploy:          map[string]string{},
	}
	info := node.Status.NodeInfo
	facts.Runtime, facts.RuntimeVersion, _ = strings.Cut(info.ContainerRuntimeVersion, "://")
	facts.Distribution = nodeinfo.DistributionOf(nodeinfo.Traits{
		Kubelet: info.KubeletVersion, OSImage: info.OSImage, RuntimeVersion: facts.RuntimeVersion, Labels: node.Labels,
	})
	for _, key := range []string{labels.DiscoveryPCIPresent, labels.DiscoveryPCI3D, labels.DiscoveryPCIVGA} {
		facts.HasGPU = facts.HasGPU || node.Labels[key] == labels.True
	}
	for key, value := range node.Labels {
		if strings.HasPrefix(key, labels.DiscoveryPrefix) {
			facts.HasDiscoveryLabels = true
		}
		if name, isDeploy := strings.CutPrefix(key, labels.DeployPrefix); isDeploy {
			facts.Deploy[name] = value
		}
	}
	return facts
}
