package neighbour

import "github.com/clusterpolicy/gpu-operator/internal/operand"

// Kind is what a neighbour is, as users read it.
type Kind string

// Kinds of neighbours.
const (
	DevicePlugin     Kind = "device plugin"
	FeatureDiscovery Kind = "GPU Feature Discovery"
	Exporter         Kind = "DCGM exporter"
	HostEngine       Kind = "DCGM host engine"
	// DRADriver offers GPUs by resource claims (dynamic resource allocation). Nodes that leave the device plugin to it are
	// ready by it. Its rival is any device plugin, not only the operand, so that it has none among the operands.
	DRADriver Kind = "DRA driver"
)

// Rival is an operand beside which a neighbour does harm.
type Rival struct {
	Operand operand.Name
	// Field of the spec that turns the operand off.
	Field string
}

// Rivals returns the operands beside which neighbours of this kind do harm. An exporter has a host engine of its own
// unless the operand dcgm runs.
func (k Kind) Rivals() []Rival {
	exporter := Rival{"dcgm-exporter", "spec.dcgmExporter.enabled"}
	switch k {
	case DevicePlugin:
		return []Rival{{"device-plugin", "spec.devicePlugin.enabled"}}
	case FeatureDiscovery:
		return []Rival{{"gpu-feature-discovery", "spec.gfd.enabled"}}
	case Exporter:
		return []Rival{exporter}
	case HostEngine:
		return []Rival{{"dcgm", "spec.dcgm.enabled"}, exporter}
	}
	return nil
}
