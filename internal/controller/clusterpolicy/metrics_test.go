package clusterpolicy

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
)

// What an ImageStream has is reported unless it could not be read.
func TestMetricsOfTheDriverToolkit(t *testing.T) {
	g := NewWithT(t)
	node := gpuNode("a")
	node.Labels["feature.node.kubernetes.io/system-os_release.ID"] = "rhcos"
	node.Labels["feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"] = "418.94.1"
	s := &scope{view: fleet.View{Nodes: []*fleet.Entry{{Facts: observe.Facts(node)}}}}
	input := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
		Operator: &v1.OperatorSpec{UseOCPDriverToolkit: new(true)},
	})}
	g.Expect(s.driverToolkitMetrics(input)).To(Equal(metrics.DriverToolkit{Needed: true, StreamMissing: true}))
	s.driverToolkitUnread = true
	g.Expect(s.driverToolkitMetrics(input)).To(Equal(metrics.DriverToolkit{Needed: true, Unread: true}))
}
