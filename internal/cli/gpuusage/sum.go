package gpuusage

import (
	"cmp"
	"maps"
	"slices"
)

// Usage is how much of one GPU or of several is used. What is not reported is absent.
type Usage struct {
	// UtilizationPercent is the mean over the GPUs, 0 to 100. That of a GPU with MIG devices is the mean over these.
	UtilizationPercent *float64 `json:"utilizationPercent,omitempty"`
	// MemoryUsedBytes and MemoryTotalBytes are sums.
	MemoryUsedBytes  *int64 `json:"memoryUsedBytes,omitempty"`
	MemoryTotalBytes *int64 `json:"memoryTotalBytes,omitempty"`
	// PowerWatts is the sum. A pod has none with a GPU that it shares, or with a MIG device.
	PowerWatts *float64 `json:"powerWatts,omitempty"`
	// TemperatureCelsius is that of the hottest GPU.
	TemperatureCelsius *float64 `json:"temperatureCelsius,omitempty"`
}

// Holder is a container that has a device.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
}

// Device is a GPU that is not divided, or a MIG device.
type Device struct {
	Node string `json:"node"`
	// GPU is the index of the GPU on its node. UUID is that of the GPU, also for a MIG device.
	GPU  string `json:"gpu"`
	UUID string `json:"uuid,omitempty"`
	// MIGInstance and MIGProfile are set for a MIG device.
	MIGInstance string `json:"migInstance,omitempty"`
	MIGProfile  string `json:"migProfile,omitempty"`
	Product     string `json:"product,omitempty"`
	Usage
	// Holders are the containers that have the device, several if they share it.
	Holders []Holder `json:"holders,omitempty"`

	// parts are those of the holders, in the same order.
	parts []Usage
}

// Node is the usage of a node's GPUs.
type Node struct {
	Name string `json:"name"`
	// GPUs that the exporter reports.
	GPUs int `json:"gpus"`
	Usage
	// Devices of the node, by GPU.
	Devices []Device `json:"devices"`
}

// Pod is the usage of a pod's GPUs.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Node of the pod.
	Node string `json:"node"`
	// Devices are how many GPUs, shares of GPUs and MIG devices the pod has.
	Devices int `json:"devices"`
	Usage
	// Parts are those of its devices: the GPU and the part of the pod.
	Parts []Device `json:"parts"`
}

// Nodes adds the devices up by node, in the order of their names.
func Nodes(all []Device) []Node {
	byNode := map[string][]Device{}
	for _, d := range all {
		byNode[d.Node] = append(byNode[d.Node], d)
	}
	nodes := []Node{}
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		var cards []Usage
		for _, gpu := range cardsOf(byNode[name]) {
			cards = append(cards, cardUsage(gpu))
		}
		nodes = append(nodes, Node{Name: name, GPUs: len(cards), Usage: sum(cards), Devices: byNode[name]})
	}
	return nodes
}

// cardsOf returns the devices of each GPU.
func cardsOf(devices []Device) [][]Device {
	byGPU := map[string][]Device{}
	for _, d := range devices {
		byGPU[d.GPU] = append(byGPU[d.GPU], d)
	}
	return slices.Collect(maps.Values(byGPU))
}

// cardUsage returns the usage of a GPU from its devices, each of which has the power of the whole GPU.
func cardUsage(devices []Device) Usage {
	var parts []Usage
	var watts *float64
	for i := range devices {
		parts = append(parts, devices[i].Usage)
		watts = larger(watts, devices[i].PowerWatts)
	}
	usage := sum(parts)
	usage.PowerWatts = watts
	return usage
}

// Pods adds the parts of the devices up by pod, in the order of namespaces and names.
func Pods(all []Device) []Pod {
	found := map[Holder]*Pod{}
	for i := range all {
		device := &all[i]
		for at, holder := range device.Holders {
			key := Holder{Namespace: holder.Namespace, Pod: holder.Pod}
			if found[key] == nil {
				found[key] = &Pod{Namespace: holder.Namespace, Name: holder.Pod, Node: device.Node}
			}
			part := *device
			part.Usage, part.Holders, part.parts = device.parts[at], []Holder{holder}, nil
			found[key].Parts = append(found[key].Parts, part)
		}
	}
	pods := []Pod{}
	for _, pod := range found {
		var parts []Usage
		for i := range pod.Parts {
			parts = append(parts, pod.Parts[i].Usage)
		}
		pod.Devices, pod.Usage = len(parts), sum(parts)
		pods = append(pods, *pod)
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// sum adds up what all parts report; the mean of utilization, and the highest temperature, of those that report it.
func sum(parts []Usage) Usage {
	total := Usage{
		MemoryUsedBytes:  added(parts, func(u Usage) *int64 { return u.MemoryUsedBytes }),
		MemoryTotalBytes: added(parts, func(u Usage) *int64 { return u.MemoryTotalBytes }),
		PowerWatts:       added(parts, func(u Usage) *float64 { return u.PowerWatts }),
	}
	busy, counted := 0.0, 0
	for _, part := range parts {
		if part.UtilizationPercent != nil {
			busy += *part.UtilizationPercent
			counted++
		}
		total.TemperatureCelsius = larger(total.TemperatureCelsius, part.TemperatureCelsius)
	}
	if counted > 0 {
		mean := busy / float64(counted)
		total.UtilizationPercent = &mean
	}
	return total
}

// added returns the sum of a value; nil if a part does not report it.
func added[T int64 | float64](parts []Usage, of func(Usage) *T) *T {
	var total T
	for _, part := range parts {
		v := of(part)
		if v == nil {
			return nil
		}
		total += *v
	}
	return &total
}

func larger(a, b *float64) *float64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	most := max(*a, *b)
	return &most
}
