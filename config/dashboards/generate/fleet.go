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
	b := board("fleet", "GPU fleet",
		"All GPUs of the cluster: how many there are, how much they are used, which ones have failed, what idle ones cost.").
		WithVariable(input("price", "Price of a GPU hour",
			"What one card costs per hour, in your currency. With 1 the panels show idle GPUs and GPU hours.", "1")).
		WithVariable(input("idle", "Idle below", "Share of time below which a held GPU counts as idle.", "0.05"))
	for _, add := range []func(*dashboard.DashboardBuilder){fleetTotals, fleetMaps, fleetHealth, fleetCost, fleetNodes} {
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
		"sum("+own("nodes")+")"), neutral)).
		WithPanel(lastValue(total("Not ready", "GPU nodes that are not ready: the dashboard of the operator has the stages.",
			units.Short, "sum("+own("nodes", `state!="ready"`)+")"), good)).
		WithPanel(lastValue(total("GPUs", "GPUs, or MIG devices, that pods can get.", units.Short,
			"sum("+own("gpus", `state="usable"`)+")"), neutral)).
		WithPanel(lastValue(total("Lost GPUs", "GPUs of the nodes that the kubelet cannot give to pods.", units.Short,
			"sum("+own("gpus", `state="lost"`)+")"), good)).
		WithPanel(lastValue(total("Unhealthy", "GPUs and NVSwitches that need a reset, a reboot or a person. From the "+
			"health agent.", units.Short,
			"count("+own("node_gpu_unhealthy")+") or 0 * sum("+own("node_nvml_gpus")+")"), good)).
		WithPanel(lastValue(total("Utilisation", "Mean of all GPUs: the share of time in which the engines work.",
			units.PercentUnit, "avg("+utilisation(everywhere)+")"), neutral).Decimals(0)).
		WithPanel(lastValue(total("Power", "What all GPUs draw.", units.Watt, "sum("+power.by(everywhere)+")"), neutral)).
		WithPanel(lastValue(total("Idle cost per hour", "Price of a GPU hour, times what is not used of all GPUs, free "+
			"ones included.", units.Short, "sum("+idleCost(everywhere)+")"), neutral).Decimals(2))
}

func fleetMaps(b *dashboard.DashboardBuilder) {
	gpus := func(title, about, legend, expression string) panel {
		return panel{title: title, about: about, unit: units.Short, width: 8, height: 8,
			queries: []query{{expression, legend}}}
	}
	b.WithRow(section("Heat maps")).
		WithPanel(heat(gpus("GPUs by utilisation", "How many GPUs, or MIG slices, work for which share of the time.",
			"{{from}} %", distribution(utilisation(everywhere)+" * 100", 10, 0, 90)))).
		WithPanel(heat(gpus("GPUs by used memory", "How many GPUs, or MIG slices, have how much of their memory in use. The "+
			"part that the driver reserves is left out.",
			"{{from}} %", distribution(memoryShare(everywhere)+" * 100", 10, 0, 90)))).
		WithPanel(heat(gpus("GPUs by temperature", "How many GPUs are how warm.", "{{from}} °C",
			distribution(temperature.by(everywhere), 5, 20, 95)))).
		WithPanel(history(panel{title: "Utilisation by node", about: "Mean of the GPUs of each node.",
			unit: units.PercentUnit, width: 12, height: 10, queries: []query{
				{fmt.Sprintf("avg by (%s) (%s)", keyNode, utilisation(everywhere)), "{{node}}"},
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
			column{field: "Value", title: "Xid"}))
}

// idleCost is the price of what is not used of each unit in an hour.
func idleCost(in scope) string {
	return shared(fmt.Sprintf("(1 - %s)", utilisationHeld(in)), utilisationHeld(in)) + " * $price"
}

func fleetCost(b *dashboard.DashboardBuilder) {
	hour, whole := scope{window: "1h"}, scope{window: "$__range"}
	team := "sum by (team) (%s)"
	b.WithRow(section("Idle cost by team")).
		WithPanel(areas(panel{title: "Idle cost per hour by team", about: "Price of a GPU hour, times what is not used of " +
			"the GPUs that the pods of a namespace hold. Pods that share a card, and MIG slices, count as equal parts of it.",
			unit: units.Short, width: 8, height: 9,
			queries: []query{{fmt.Sprintf(team, idleCost(everywhere)), "{{team}}"}}})).
		WithPanel(rows(panel{title: "Teams", about: "GPUs that the pods of a namespace hold now, their mean utilisation in " +
			"the time of the dashboard, and what was not used has cost. All that have held a " +
			"card in this time are equal parts.", unit: units.Short, width: 6, height: 9, queries: []query{
			{fmt.Sprintf(team, shared("("+utilisationHeld(everywhere)+" * 0 + 1)", utilisationHeld(everywhere))), ""},
			{"avg by (team) (" + utilisationHeld(whole) + ")", ""},
			{fmt.Sprintf(team, idleCost(whole)) + " * $__range_s / 3600", ""},
		}}, "Idle cost",
			column{field: "team", title: "Team"}, column{field: "Value #A", title: "GPUs", unit: units.Short},
			column{field: "Value #B", title: "Used", unit: units.PercentUnit, bar: 1},
			column{field: "Value #C", title: "Idle cost", unit: units.Short})).
		WithPanel(rows(panel{title: "Held but idle for an hour", about: "GPUs that a pod holds and has used less than the " +
			"variable says in the last hour.", unit: units.Short, width: 10, height: 9, queries: []query{
			{fmt.Sprintf("%s < $idle and on (%s) %s unless on (team) label_replace(vector(0), %q, %q, %q, %q)",
				utilisationHeld(hour), keyHeld, utilisationHeld(everywhere), "team", "(free)", "", ""), ""},
		}}, "", column{field: "workload", title: "Pod"},
			column{field: "node", title: "Node", link: fmt.Sprintf(toNode, "Node")}, column{field: "gpu", title: "GPU"},
			column{field: "GPU_I_ID", title: "Slice"}, column{field: "Value", title: "Used", unit: units.PercentUnit}))
}

func fleetNodes(b *dashboard.DashboardBuilder) {
	byNode := func(aggregate, of string) string { return fmt.Sprintf("%s by (%s) (%s)", aggregate, keyNode, of) }
	b.WithRow(section("Nodes")).
		WithPanel(rows(panel{title: "Nodes", about: "A click on a node opens its dashboard.", unit: units.Short, width: 24,
			height: 11, queries: []query{
				{byNode("count", temperature.by(everywhere)), ""},
				{byNode("avg", utilisation(everywhere)), ""},
				{byNode("avg", memoryShare(everywhere)), ""},
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
