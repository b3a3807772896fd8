package gpuusage

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// quantity is something that an exporter reports of a GPU, in the unit of Usage.
type quantity int

const (
	utilization quantity = iota
	// engine is the share of time in which the compute engine works. It is the only utilization of a MIG device.
	engine
	memoryUsed
	memoryFree
	memoryReserved
	memoryTotal
	power
	temperature
)

// mebi is the unit of memory up to exporter 4.8, in bytes.
const mebi = 1 << 20

// ratioSeries is a series whose unit depends on the exporter: DCGM 4.6 has the name for a percentage, and DCGM 4.7 for
// a ratio.
const ratioSeries = "DCGM_FI_DEV_GPU_UTIL_RATIO"

// oldDriverLabel is a label that series have only up to exporter 4.8.
const oldDriverLabel = "DCGM_FI_DRIVER_VERSION"

// measure is what a series means: its value times scale is the quantity.
type measure struct {
	quantity quantity
	scale    float64
}

// series are those that are read: of exporters up to 4.8, and of 4.9. The units are those of DCGM's field tables.
var series = map[string]measure{
	"DCGM_FI_DEV_GPU_UTIL":          {utilization, 1},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE": {engine, 100},
	"DCGM_FI_DEV_FB_USED":           {memoryUsed, mebi},
	"DCGM_FI_DEV_FB_FREE":           {memoryFree, mebi},
	"DCGM_FI_DEV_FB_RESERVED":       {memoryReserved, mebi},
	"DCGM_FI_DEV_FB_TOTAL":          {memoryTotal, mebi},
	"DCGM_FI_DEV_POWER_USAGE":       {power, 1},
	"DCGM_FI_DEV_GPU_TEMP":          {temperature, 1},

	ratioSeries:                         {utilization, 100},
	"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": {engine, 100},
	"DCGM_FI_DEV_FB_USED_BYTES":         {memoryUsed, 1},
	"DCGM_FI_DEV_FB_FREE_BYTES":         {memoryFree, 1},
	"DCGM_FI_DEV_FB_RESERVED_BYTES":     {memoryReserved, 1},
	"DCGM_FI_DEV_FB_CAPACITY_BYTES":     {memoryTotal, 1},
	"DCGM_FI_DEV_BOARD_POWER_WATTS":     {power, 1},
	"DCGM_FI_DEV_GPU_TEMP_CELSIUS":      {temperature, 1},
}

// maxBlank bounds what is a value: DCGM has numbers above it for what it cannot read.
const maxBlank = 1 << 46

// sample is one value of a series.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// Parse returns the devices that the exporter of a node reports, by GPU and MIG device. Series of other names are
// ignored.
func Parse(node string, metrics io.Reader) ([]Device, error) {
	samples, err := read(metrics)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	percent := reportsPercent(samples)
	found := map[string]*reported{}
	for _, s := range samples {
		m := series[s.name]
		if s.name == ratioSeries && percent {
			m.scale = 1
		}
		key := s.labels["gpu"] + "/" + s.labels["GPU_I_ID"]
		if found[key] == nil {
			found[key] = &reported{Device: Device{Node: node}, values: map[quantity]map[Holder]float64{}}
		}
		found[key].identify(s.labels)
		found[key].set(m.quantity, holderOf(s.labels), s.value*m.scale)
	}
	return completeDevices(found), nil
}

// read returns the samples of GPUs that are known, in the order of their names.
func read(metrics io.Reader) ([]sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return nil, err
	}
	var found []sample
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, known := series[name]; !known {
			continue
		}
		for _, metric := range families[name].GetMetric() {
			s := sample{name: name, labels: map[string]string{}, value: metric.GetUntyped().GetValue()}
			switch {
			case metric.GetGauge() != nil:
				s.value = metric.GetGauge().GetValue()
			case metric.GetCounter() != nil:
				s.value = metric.GetCounter().GetValue()
			}
			for _, label := range metric.GetLabel() {
				s.labels[label.GetName()] = label.GetValue()
			}
			if s.labels["gpu"] != "" && !math.IsNaN(s.value) && s.value >= 0 && s.value < maxBlank {
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// reportsPercent reports whether ratioSeries is a percentage.
func reportsPercent(samples []sample) bool {
	return slices.ContainsFunc(samples, func(s sample) bool {
		_, old := s.labels[oldDriverLabel]
		return s.name == ratioSeries && (old || s.value > 1)
	})
}

// holderOf returns the pod that has the GPU; empty for none. The second names are those of
// DCGM_EXPORTER_USE_OLD_NAMESPACE.
func holderOf(labels map[string]string) Holder {
	return Holder{
		Namespace: cmp.Or(labels["namespace"], labels["pod_namespace"]), Pod: cmp.Or(labels["pod"], labels["pod_name"]),
		Container: cmp.Or(labels["container"], labels["container_name"]),
	}
}

// reported is a device while its series are read.
type reported struct {
	Device
	// values by quantity and holder.
	values map[quantity]map[Holder]float64
}

// identify takes up what the labels of a series say of the device.
func (r *reported) identify(labels map[string]string) {
	r.GPU, r.MIGInstance = labels["gpu"], labels["GPU_I_ID"]
	r.UUID = cmp.Or(r.UUID, labels["UUID"])
	r.MIGProfile = cmp.Or(r.MIGProfile, labels["GPU_I_PROFILE"])
	r.Product = cmp.Or(r.Product, labels["modelName"])
}

func (r *reported) set(q quantity, holder Holder, value float64) {
	if r.values[q] == nil {
		r.values[q] = map[Holder]float64{}
	}
	r.values[q][holder] = value
	if holder.Pod != "" && !slices.Contains(r.Holders, holder) {
		r.Holders = append(r.Holders, holder)
	}
}

// completeDevices completes the devices. A GPU with MIG devices is none itself.
func completeDevices(found map[string]*reported) []Device {
	divided := map[string]bool{}
	for _, r := range found {
		divided[r.GPU] = divided[r.GPU] || r.MIGInstance != ""
	}
	all := []Device{}
	for _, r := range found {
		if divided[r.GPU] && r.MIGInstance == "" {
			continue
		}
		if card := found[r.GPU+"/"]; card != nil {
			r.adopt(card)
		}
		r.complete()
		all = append(all, r.Device)
	}
	slices.SortFunc(all, compareDevices)
	return all
}

// adopt takes over from the GPU what is not reported of its MIG devices.
func (r *reported) adopt(card *reported) {
	for _, q := range []quantity{power, temperature} {
		if r.values[q] == nil {
			r.values[q] = card.values[q]
		}
	}
}

// compareDevices orders the devices of a node.
func compareDevices(a, b Device) int {
	return cmp.Or(cmp.Compare(len(a.GPU), len(b.GPU)), cmp.Compare(a.GPU, b.GPU),
		cmp.Compare(len(a.MIGInstance), len(b.MIGInstance)), cmp.Compare(a.MIGInstance, b.MIGInstance))
}

// complete computes the usage of the device, and the part of each holder.
func (r *reported) complete() {
	slices.SortFunc(r.Holders, compareHolders)
	util := utilization
	if r.values[util] == nil {
		util = engine
	}
	r.Usage = Usage{
		UtilizationPercent: atMost(r.total(util), 100), MemoryUsedBytes: whole(r.total(memoryUsed)),
		MemoryTotalBytes: whole(r.memory()), PowerWatts: r.largest(power), TemperatureCelsius: r.largest(temperature),
	}
	if known := r.largest(memoryTotal); known != nil && r.values[memoryFree] != nil {
		used := *known - *r.largest(memoryFree) - value(r.largest(memoryReserved))
		r.MemoryUsedBytes = whole(&used)
	}
	for _, holder := range r.Holders {
		part := Usage{TemperatureCelsius: r.TemperatureCelsius}
		part.UtilizationPercent = r.of(util, holder)
		part.MemoryUsedBytes = whole(r.of(memoryUsed, holder))
		part.MemoryTotalBytes = r.MemoryTotalBytes
		// A part of a GPU has no power of its own.
		if len(r.Holders) == 1 && r.MIGInstance == "" {
			part.PowerWatts = r.PowerWatts
		}
		r.parts = append(r.parts, part)
	}
}

// memory returns all memory of the device; nil if unknown. Exporters up to 4.8 do not report it by default, but its
// parts, which do not add up if the used one is reported by pod.
func (r *reported) memory() *float64 {
	if known := r.largest(memoryTotal); known != nil || r.values[memoryUsed] == nil || r.values[memoryFree] == nil {
		return known
	}
	sum := value(r.total(memoryUsed)) + value(r.largest(memoryFree)) + value(r.largest(memoryReserved))
	return &sum
}

// total returns a quantity of the whole device. Exporters repeat the same value for each pod that shares the device, or
// report the part of each, beside that of the device.
func (r *reported) total(q quantity) *float64 {
	if whole := r.of(q, Holder{}); whole != nil {
		return whole
	}
	values := slices.Collect(maps.Values(r.values[q]))
	if len(values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if slices.Max(values) == slices.Min(values) {
		sum = values[0]
	}
	return &sum
}

// largest returns a quantity that is the same for all pods that share the device.
func (r *reported) largest(q quantity) *float64 {
	values := slices.Collect(maps.Values(r.values[q]))
	if len(values) == 0 {
		return nil
	}
	most := slices.Max(values)
	return &most
}

func (r *reported) of(q quantity, holder Holder) *float64 {
	v, known := r.values[q][holder]
	if !known {
		return nil
	}
	return &v
}

func value(known *float64) float64 {
	if known == nil {
		return 0
	}
	return *known
}

func atMost(known *float64, limit float64) *float64 {
	if known == nil {
		return nil
	}
	bounded := min(*known, limit)
	return &bounded
}

func whole(known *float64) *int64 {
	if known == nil {
		return nil
	}
	rounded := int64(max(0, math.Round(*known)))
	return &rounded
}

func compareHolders(a, b Holder) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
}
