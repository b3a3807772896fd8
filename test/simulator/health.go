package simulator

import (
	"context"
	"fmt"
)

// XidAnnotation of a Node with NodeSpec.Processes is an Xid of its first GPU, such as 79, which the driver logs once.
// The GPU has been reset once the annotation is gone. The device plugin does not notice either.
const XidAnnotation = "demo/xid"

// logXid plays a change of XidAnnotation.
func (n *node) logXid() error {
	const gpu = 0
	xid := n.object.Annotations[XidAnnotation]
	if n.host == nil || xid == n.xid {
		return nil
	}
	log := func() error { return n.host.LogXid(gpu, xid) }
	if xid == "" {
		log = func() error { return n.host.LogReset(gpu) }
	}
	if err := log(); err != nil {
		return fmt.Errorf("log an Xid on node %s: %w", n.name, err)
	}
	n.xid = xid
	return nil
}

// writeHealth writes what a played health agent reports once it runs on a node of a known model: no GPU has a fault.
func (n *node) writeHealth(ctx context.Context) error {
	if n.host != nil || n.model == "" {
		return nil
	}
	for _, p := range n.pods {
		if p.app != appHealth || !p.ready() || p.instance() == n.reporter {
			continue
		}
		if err := n.patchMetadata(ctx, map[string]any{"annotations": map[string]string{
			healthReport: fmt.Sprintf(`{"boot":%q,"faults":[]}`, n.object.Status.NodeInfo.BootID),
		}}); err != nil {
			return err
		}
		n.reporter = p.instance()
	}
	return nil
}
