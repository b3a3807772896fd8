package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// job is the dashboard of one or more pods of a namespace, for those who run them.
func job() *dashboard.DashboardBuilder {
	const workload = "gpu_workload:utilization:ratio"
	inNamespace := anywhere + `, namespace=~"$namespace"`
	b := board("job", "My GPU job", "The GPUs that pods of a namespace hold, and have held in the time of the "+
		"dashboard. It needs only the DCGM exporter.").
		WithVariable(listed("namespace", "Namespace", "namespace", "max by (namespace) ("+of(workload, anywhere)+")")).
		WithVariable(several("pod", "Pod", "pod", "max by (pod) ("+of(workload, inNamespace)+")"))
	jobNow(b)
	jobHistory(b)
	return b
}

func jobNow(b *dashboard.DashboardBuilder) {
	b.WithPanel(rows(panel{title: "GPUs", about: "GPUs and MIG slices that the pods hold now.", unit: units.Short,
		width: 24, height: 7, queries: []query{
			{heldBy(), ""},
			{jobs(memoryShare.by(anywhere), true), ""},
			{jobs(temperature.by(anywhere), false), ""},
			{jobs(power.by(anywhere), false), ""},
			{jobs(lastXid.by(anywhere), false), ""},
		}}, "", column{field: "pod", title: "Pod"},
		column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")}, column{field: "gpu", title: "GPU"},
		column{field: "GPU_I_ID", title: "Slice"},
		column{field: "Value #A", title: "Utilisation", unit: units.PercentUnit, bar: 1},
		column{field: "Value #B", title: "Memory", unit: units.PercentUnit, bar: 1},
		column{field: "Value #C", title: "Temperature", unit: units.Celsius},
		column{field: "Value #D", title: "Power", unit: units.Watt},
		column{field: "Value #E", title: "Last Xid", words: xidWords()}))
}

func jobHistory(b *dashboard.DashboardBuilder) {
	half := func(title, about, unit, legend, expression string) panel {
		return panel{title: title, about: about, unit: unit, width: 12, height: 8, queries: []query{{expression, legend}}}
	}
	const slice, card = "{{node}} GPU {{gpu}} {{GPU_I_ID}}", "{{node}} GPU {{gpu}}"
	const whole = " A MIG slice shows its whole GPU."
	const profiled = " Needs the profiling counters of DCGM."
	b.WithRow(section("Over time")).
		WithPanel(history(half("Utilisation", "Share of time in which the engines work, for each pod.", units.PercentUnit,
			"{{pod}} "+slice, heldBy()))).
		WithPanel(lines(half("Used memory", "Framebuffer in use.", units.BytesIEC, slice,
			jobs(memoryUsed.by(anywhere), true)))).
		WithPanel(lines(half("Tensor cores", "Share of time in which the tensor cores work."+profiled, units.PercentUnit,
			slice, jobs(tensorActive.by(anywhere), true)))).
		WithPanel(lines(half("Memory activity", "Share of time in which the memory sends or receives. Busy engines without "+
			"it may wait for each other."+profiled, units.PercentUnit, slice, jobs(memoryActive.by(anywhere), true)))).
		WithPanel(lines(half("Temperature", "Temperature of each GPU."+whole, units.Celsius, card,
			jobs(temperature.by(anywhere), false)))).
		WithPanel(lines(half("Power", "What each GPU draws."+whole, units.Watt, card, jobs(power.by(anywhere), false)))).
		WithPanel(lines(half("NVLink", "What the links of each GPU carry."+whole, units.BytesPerSecondIEC, card,
			jobs(nvlink.by(anywhere), false)))).
		WithPanel(bars(half("Energy", "What each GPU has used in the time of the dashboard, by other pods too."+whole,
			units.WattHour, card, jobs(energy.increase(anywhere), false)), neutral))
}
