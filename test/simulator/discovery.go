package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Values of annotationDiscovery.
const (
	// discoveryByProgram: the node is labelled once gpu-node discover has run there.
	discoveryByProgram = "gpu-node"
	// discoveryByNFD: Node Feature Discovery has labelled the node. gpu-node discover takes over the labels that the
	// annotation of Node Feature Discovery does not list any more.
	discoveryByNFD = "nfd"
	discoveryNever = "never"
)

// discovered returns the labels that node discovery sets on the node of a machine.
func discovered(os, version, kernel string, gpus int) map[string]string {
	labels := map[string]string{
		discoveryKernel:    kernel,
		discoveryOSID:      os,
		discoveryOSVersion: version,
	}
	if gpus > 0 {
		labels[discoveryPCI] = "true"
		labels[discoveryPCI3D] = "true"
	}
	return labels
}

// listed returns discovery labels in the format of Node Feature Discovery's annotation.
func listed(labels map[string]string) string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		names = append(names, strings.TrimPrefix(key, discoveryPrefix))
	}
	return strings.Join(names, ",")
}

// discovers reports whether a running pod with a simulated gpu-node discover has processed the node.
func (n *node) discovers() bool {
	ran := func(c *container) bool { return c.program.verb == verbDiscover && c.done() }
	for _, p := range n.pods {
		if !p.ending() && slices.ContainsFunc(p.inits, ran) {
			return true
		}
	}
	return false
}

// writeDiscovery writes what gpu-node discover would write, if it is only simulated.
func (n *node) writeDiscovery(ctx context.Context) error {
	by := n.object.Annotations[annotationDiscovery]
	if n.host != nil || by != discoveryByProgram && by != discoveryByNFD || !n.discovers() {
		return nil
	}
	if _, ok := n.object.Annotations[discoveredLabels]; ok {
		return nil
	}
	info := n.object.Status.NodeInfo
	os, version := splitOS(info)
	labels := discovered(os, version, info.KernelVersion, int(n.gpus))
	theirs := strings.Split(n.object.Annotations[featureLabels], ",")
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return slices.Contains(theirs, strings.TrimPrefix(key, discoveryPrefix))
	})
	if len(labels) == 0 {
		return nil
	}
	return n.patchMetadata(ctx, map[string]any{
		"labels":      labels,
		"annotations": map[string]string{discoveredLabels: strings.Join(slices.Sorted(maps.Keys(labels)), ",")},
	})
}

// splitOS reverses the joining by NodeSpec.node.
func splitOS(info corev1.NodeSystemInfo) (os, version string) {
	os, version, _ = strings.Cut(info.OSImage, " ")
	return os, version
}

// patchMetadata changes labels and annotations of the Node, and keeps the result until the watch returns it.
func (n *node) patchMetadata(ctx context.Context, metadata map[string]any) error {
	metadata["uid"] = n.uid
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode metadata of node %s: %w", n.name, err)
	}
	written, err := n.sim.client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("write metadata of node %s: %w", n.name, err)
	}
	n.object = written
	return nil
}
