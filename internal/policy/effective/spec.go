package effective

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Spec is the spec of a policy with its defaults. It is a type of its own, so that a spec without them does not
// compile in its place. Make it by Of: the zero value has no blocks. Do not change it: copies share blocks.
type Spec struct{ v1.ClusterPolicySpec }

// Of returns a copy of the spec with the defaults. A block that is absent, null or empty means the same, except
// for migManager.config. What the user has set is kept, even where it contradicts itself.
func Of(spec v1.ClusterPolicySpec) Spec {
	s := spec.DeepCopy()
	normalise(s)
	option(&s.Paused, false) // own
	operator(block(&s.Operator))
	global(block(&s.Global))
	nodeDiscovery(block(&s.NodeDiscovery))
	deadlines(block(&s.Deadlines))
	value(&block(&s.NodeStartup).OnFailure, v1.OnFailureReport) // own
	option(&s.NodeStartup.CleanFailedPods, false)               // own
	option(&block(&s.Removal).Force, false)                     // own
	health(block(&s.Health))
	daemonSets(block(&s.DaemonSets))
	hostPaths(block(&s.HostPaths))
	cdi(block(&s.CDI))
	block(&s.MIG)
	option(&block(&s.PSA).Enabled, false) // NVIDIA
	driver(block(&s.Driver))
	gds(block(&s.GDS))
	gdrcopy(block(&s.GDRCopy))
	toolkit(block(&s.Toolkit))
	devicePlugin(block(&s.DevicePlugin))
	option(&block(&s.GFD).Enabled, true) // NVIDIA
	migManager(block(&s.MIGManager))
	dcgm(block(&s.DCGM))
	dcgmExporter(block(&s.DCGMExporter))
	nodeStatusExporter(block(&s.NodeStatusExporter))
	validator(block(&s.Validator))
	virtualMachines(s)
	operandBlocks(s)
	return Spec{*s}
}

// block returns the block, allocated where it is absent.
func block[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

// option sets the default of a field that may be absent.
func option[T any](field **T, fallback T) {
	if *field == nil {
		*field = &fallback
	}
}

// value sets the default of a field that is absent if it is empty or 0.
func value[T comparable](field *T, fallback T) {
	if *field == *new(T) {
		*field = fallback
	}
}
