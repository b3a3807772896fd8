package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Ways from one dashboard to the one of a node, by a label of the row.
const toNode = "/d/gpu-operator-node?var-datasource=${datasource}&var-cluster=${cluster}&var-node=${__data.fields.%s}"

// fleet is the dashboard of all GPUs.
func fleet() *dashboard.DashboardBuilder {
	b := board("fleet", "GPU fleet", "All GPUs of the cluster: how many there are, how much they are used, which ones "+
		"have failed, what idle ones cost. "+rulesNeeded)
	b.WithVariable(several("product", "Product", "modelName", "max by (modelName) ("+of(temperature.name, anywhere)+")")).
		WithVariable(several("node", "Node", "node", temperature.by(anywhere))).
		WithVariable(several("namespace", "Namespace", "namespace",
			"max by (namespace) ("+of("gpu_workload:utilization:ratio", anywhere)+")"))
	for _, add := range []func(*dashboard.DashboardBuilder){fleetTotals, fleetMaps, fleetHealth, fleetIdle, fleetNodes} {
		add(b)
	}
	return b
}

// total is a stat of a row of eight.
func total(title, about, unit, expression string) panel {
	return panel{title: title, about: about, unit: unit, width: 3, height: 4, queries: []query{{expression: expression}}}
}

func fleetTotals(b *dashboard.DashboardBuilder) {
	b.WithPanel(lastValue(total("GPU nodes", "GPU nodes, without those that are excluded from operands.", units.Short,
		"sum("+own("nodes")+") or count("+byNode("count", temperature.by(everywhere))+")"), neutral)).
		WithPanel(lastValue(total("Not ready", "GPU nodes that are not ready: the dashboard of the operator has the stages.",
			units.Short, "sum("+own("nodes", `state!="ready"`)+")"), good)).
		WithPanel(lastValue(total("GPUs", "GPUs, or MIG devices, that pods can get.", units.Short,
			"sum("+own("gpus", `state="usable"`)+") or count("+utilisation.by(everywhere)+")"), neutral)).
		WithPanel(lastValue(total("Lost GPUs", "GPUs of the nodes that the kubelet cannot give to pods.", units.Short,
			"sum("+own("gpus", `state="lost"`)+")"), good)).
		WithPanel(lastValue(total("Unhealthy", "GPUs and NVSwitches that need a reset, a reboot or a person. From the "+
			"health agent.", units.Short,
			"count("+own("node_gpu_unhealthy")+") or 0 * sum("+own("node_nvml_gpus")+")"), good)).
		WithPanel(lastValue(total("Utilisation", "Mean of all GPUs: the share of time in which the engines work.",
			units.PercentUnit, "avg("+utilisation.by(everywhere)+")"), neutral).Decimals(0)).
		WithPanel(lastValue(total("Power", "What all GPUs draw.", units.Watt, "sum("+power.by(everywhere)+")"), neutral)).
		WithPanel(lastValue(total("Idle GPUs", "GPUs that a pod has held for an hour without using them, and MIG slices and "+
			"shared GPUs by their part of a card.", units.Short,
			"sum("+of("namespace:gpu_idle:sum", ofTeams)+")"), neutral).Decimals(1))
}

func fleetMaps(b *dashboard.DashboardBuilder) {
	gpus := func(title, about, legend, expression string) panel {
		return panel{title: title, about: about, unit: units.Short, width: 8, height: 8,
			queries: []query{{expression, legend}}}
	}
	b.WithRow(section("Heat maps")).
		WithPanel(heat(gpus("GPUs by utilisation", "How many GPUs, or MIG slices, work for which share of the time.",
			"{{from}} %", distribution(utilisation.by(everywhere)+" * 100", 10, 0, 90)))).
		WithPanel(heat(gpus("GPUs by used memory", "How many GPUs, or MIG slices, have how much of their memory in use.",
			"{{from}} %", distribution(memoryShare.by(everywhere)+" * 100", 10, 0, 90)))).
		WithPanel(heat(gpus("GPUs by temperature", "How many GPUs are how warm.", "{{from}} °C",
			distribution(temperature.by(everywhere), 5, 20, 95)))).
		WithPanel(history(panel{title: "Utilisation by node", about: "Mean of the GPUs of each node.",
			unit: units.PercentUnit, width: 12, height: 10, queries: []query{
				{byNode("avg", utilisation.by(everywhere)), "{{node}}"},
			}})).
		WithPanel(lines(panel{title: "Temperature and power", about: "The hottest GPU, the 95th percentile and the median, " +
			"and the mean power of a GPU.", unit: units.Celsius, width: 12, height: 10, queries: []query{
			{fmt.Sprintf("max(%s)", temperature.by(everywhere)), "hottest"},
			{fmt.Sprintf("quantile(0.95, %s)", temperature.by(everywhere)), "95 %"},
			{fmt.Sprintf("quantile(0.5, %s)", temperature.by(everywhere)), "median"},
			{fmt.Sprintf("avg(%s)", power.by(everywhere)), "power"},
		}}).OverrideByName("power", []dashboard.DynamicConfigValue{
			{Id: "unit", Value: units.Watt}, {Id: "custom.axisPlacement", Value: "right"},
		}))
}

func fleetHealth(b *dashboard.DashboardBuilder) {
	b.WithRow(section("Errors")).
		WithPanel(areas(panel{title: "Xid errors since boot, by code", about: "Lines of the kernel logs about Xid errors. " +
			"The class says who has to act, see docs/health.md. From the health agent.", unit: units.Short, width: 8, height: 8,
			queries: []query{{"sum by (xid, class) (" + own("node_gpu_xid_total") + ")", "{{xid}} {{class}}"}}})).
		WithPanel(rows(panel{title: "Devices that need help", about: "What the health agent has found: the class is what " +
			"is needed.", unit: units.Short, width: 8, height: 8, queries: []query{
			{"max by (" + keyNode + ", pci, class, reason) (" + own("node_gpu_unhealthy") + ")", ""},
		}}, "", column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")},
			column{field: "pci", title: "Device"},
			column{field: "class", title: "Needs"}, column{field: "reason", title: "Reason"})).
		WithPanel(rows(panel{title: "Last Xid by GPU", about: "The last code that DCGM has seen. It stays until the " +
			"exporter starts again, and the same code twice looks like once.", unit: units.Short, width: 8, height: 8,
			queries: []query{{lastXid.by(everywhere) + " > 0", ""}}}, "Xid",
			column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")}, column{field: "gpu", title: "GPU"},
			column{field: "Value", title: "Xid", words: xidWords()}))
}

// byNode aggregates a vector by node.
func byNode(aggregate, vector string) string {
	return fmt.Sprintf("%s by (%s) (%s)", aggregate, keyNode, vector)
}

// byNamespace sums a vector by namespace.
func byNamespace(vector string) string {
	return fmt.Sprintf("sum by (cluster, namespace) (%s)", vector)
}

// idleOf sums a series of gpu_workload by unit and pod, of those that are idle.
func idleOf(name string) string {
	held := everywhere + `, namespace=~"$namespace"`
	return fmt.Sprintf("sum by (%s) (%s * %s) > 0", keyHeld, of("gpu_workload:"+name, held),
		of("gpu_workload:idle:bool", held))
}

func fleetIdle(b *dashboard.DashboardBuilder) {
	held, idle := of("namespace:gpu_allocated:sum", ofTeams), of("namespace:gpu_idle:sum", ofTeams)
	cost := of("namespace:gpu_idle_cost:per_hour", ofTeams)
	b.WithRow(section("Idle GPUs by namespace")).
		WithPanel(areas(panel{title: "Held GPUs", about: "GPUs that the pods of each namespace hold, and those that no pod " +
			"holds. MIG slices and shared GPUs count by their part of a card.", unit: units.Short, width: 7, height: 9,
			queries: []query{
				{byNamespace(held), "{{namespace}}"},
				{fmt.Sprintf("count(%s) - (sum(%s) or 0 * count(%[1]s))", temperature.by(everywhere), held), "(free)"},
			}})).
		WithPanel(areas(panel{title: "Cost of idle GPUs per hour", about: "Price of the GPUs that the pods of each " +
			"namespace have held for an hour without using them. " + priceNeeded, unit: units.Short, width: 7, height: 9,
			without: priceNeeded, queries: []query{{byNamespace(cost), "{{namespace}}"}}})).
		WithPanel(rows(panel{title: "Namespaces", about: "GPUs that the pods of a namespace hold now, and those of them " +
			"that are idle; their mean utilisation in the time of the dashboard, and what idle ones have cost in it. The " +
			"cost needs a price, see Cost of idle GPUs per hour.", unit: units.Short, width: 10, height: 9, queries: []query{
			{byNamespace(held), ""},
			{byNamespace(idle), ""},
			{fmt.Sprintf("avg by (cluster, namespace) (avg_over_time(%s[$__range]))",
				of("namespace:gpu_utilization:ratio", ofTeams)), ""},
			// A sample for each five minutes, whatever the interval of the rules.
			{byNamespace("sum_over_time("+cost+"[$__range:5m])") + " / 12", ""},
		}}, "Idle",
			column{field: "namespace", title: "Namespace"}, column{field: "Value #A", title: "GPUs"},
			column{field: "Value #B", title: "Idle"},
			column{field: "Value #C", title: "Used", unit: units.PercentUnit, bar: 1},
			column{field: "Value #D", title: "Idle cost"})).
		WithPanel(rows(panel{title: "Pods with idle GPUs", about: "Pods that have held GPUs, or parts of them, for an hour " +
			"and not used them: their utilisation has always been below the parameter idle_ratio of the rules.",
			unit: units.Short, width: 24, height: 6, queries: []query{
				{idleOf("share:ratio"), ""},
				{idleOf("cost:per_hour"), ""},
			}}, "GPUs", column{field: "namespace", title: "Namespace"}, column{field: "pod", title: "Pod"},
			column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")}, column{field: "gpu", title: "GPU"},
			column{field: "GPU_I_ID", title: "Slice"}, column{field: "Value #A", title: "GPUs"},
			column{field: "Value #B", title: "Cost per hour"}))
}

func fleetNodes(b *dashboard.DashboardBuilder) {
	b.WithRow(section("Nodes")).
		WithPanel(rows(panel{title: "Nodes", about: "A click on a node opens its dashboard.", unit: units.Short, width: 24,
			height: 8, queries: []query{
				{byNode("count", temperature.by(everywhere)), ""},
				{byNode("avg", utilisation.by(everywhere)), ""},
				{byNode("avg", memoryShare.by(everywhere)), ""},
				{byNode("max", temperature.by(everywhere)), ""},
				{byNode("sum", power.by(everywhere)), ""},
				{byNode("sum", own("node_gpu_xid_total")), ""},
				{byNode("count", own("node_gpu_unhealthy")), ""},
			}}, "Utilisation",
			column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")},
			column{field: "Value #A", title: "GPUs"},
			column{field: "Value #B", title: "Utilisation", unit: units.PercentUnit, bar: 1},
			column{field: "Value #C", title: "Memory", unit: units.PercentUnit, bar: 1},
			column{field: "Value #D", title: "Hottest", unit: units.Celsius},
			column{field: "Value #E", title: "Power", unit: units.Watt},
			column{field: "Value #F", title: "Xid errors"}, column{field: "Value #G", title: "Unhealthy"}))
}
