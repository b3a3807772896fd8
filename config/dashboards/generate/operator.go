package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// ofOperator selects the operator's series among those that every controller has.
const ofOperator = `job=~"$job"`

// operator is the dashboard of the operator.
func operator() *dashboard.DashboardBuilder {
	b := board("operator", "GPU operator", "The operator: how far nodes are, how long they take, driver upgrades, "+
		"operands, and what the operator asks of the API server.").
		WithVariable(choice("job", "Job", "label_values(gpu_operator_reconciliation_total, job)").IncludeAll(true).
			Current(selection("All", "$__all")))
	for _, add := range []func(*dashboard.DashboardBuilder){
		operatorTotals, operatorNodes, operatorJoins, operatorUpgrades, operatorItself,
	} {
		add(b)
	}
	return b
}

// rate returns the increase per second of a counter, summed by labels; joined is the metric with its matchers.
func rate(labels, joined string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", labels, joined)
}

// foreign returns a metric of a library that other programs have too.
func foreign(name string) string { return fmt.Sprintf("%s{%s, %s}", name, inCluster, ofOperator) }

func operatorTotals(b *dashboard.DashboardBuilder) {
	status := map[string]string{"1": "ready", "0": "not ready", "-1": "no policy", "-2": "API call failed"}
	b.WithPanel(lastValue(total("State", "Of the last pass.", units.Short, "min("+own("reconciliation_status")+")"),
		colors("red", step{0, "orange"}, step{1, "green"})).Mappings(words(status))).
		WithPanel(lastValue(total("Since all was ready", "How long ago everything was as the spec requests.", units.Seconds,
			"time() - max("+own("reconciliation_last_success_ts_seconds")+" > 0)"),
			colors("green", step{900, "orange"}, step{3600, "red"})).Decimals(0)).
		WithPanel(lastValue(total("Ready nodes", "Share of the GPU nodes that are ready.", units.PercentUnit,
			"sum("+own("nodes", `state="ready"`)+") / sum("+own("nodes")+")"),
			colors("red", step{0.9, "orange"}, step{1, "green"})).Decimals(1)).
		WithPanel(lastValue(total("Degraded nodes", "GPU nodes that have failed at a stage.", units.Short,
			"sum("+own("nodes", `state="degraded"`)+")"), good)).
		WithPanel(lastValue(total("Excluded nodes", "GPU nodes that get no operands.", units.Short,
			"sum("+own("nodes_excluded")+")"), neutral)).
		WithPanel(lastValue(total("Frozen", "1: the operator changes nothing: see the Event CRDOutdated or "+
			"OtherOperatorRunning of the policy.", units.Short, "max("+own("frozen")+")"), good).
			Mappings(words(map[string]string{"0": "no", "1": "yes"}))).
		WithPanel(lastValue(total("Missing fields", "Fields of this release that the CRD in the cluster does not have.",
			units.Short, "max("+own("definition_missing_fields")+")"), good)).
		WithPanel(lastValue(total("Upgrades stuck", "Driver upgrades that do not go on without help.", units.Short,
			"sum("+own("nodes_upgrades_held")+")"), good))
}

func operatorNodes(b *dashboard.DashboardBuilder) {
	b.WithRow(section("Nodes")).
		WithPanel(areas(panel{title: "Nodes by stage", about: "GPU nodes by the first stage that they have not reached; " +
			"ready ones have reached all.", unit: units.Short, width: 12, height: 9, queries: []query{
			{"sum(" + own("nodes", `state="ready"`) + ")", "ready"},
			{"sum by (stage, state) (" + own("nodes", `state!="ready"`) + ")", "{{stage}} {{state}}"},
		}})).
		WithPanel(states(panel{title: "Conditions", about: "Conditions of the ClusterPolicy.", unit: units.Short, width: 6,
			height: 9, queries: []query{{"max by (type) (" + own("condition") + ")", "{{type}}"}}},
			colors("gray", step{1, "blue"}),
			map[string]string{"0": "False", "1": "True"})).
		WithPanel(lines(panel{title: "Unhealthy GPUs", about: "Nodes with an unhealthy GPU, by what the operator does, and " +
			"held by which brake.", unit: units.Short, width: 6, height: 9, queries: []query{
			{"sum by (action) (" + own("health_action_nodes") + ")", "{{action}}"},
			{"sum by (reason) (" + own("health_action_nodes_held") + ") > 0", "held: {{reason}}"},
		}}))
}

func operatorJoins(b *dashboard.DashboardBuilder) {
	buckets := own("node_join_seconds_bucket")
	since := "Of the nodes that have joined since the operator started."
	quantile := func(q float64) string {
		return fmt.Sprintf("histogram_quantile(%g, sum by (stage, le) (%s))", q, buckets)
	}
	b.WithRow(section("Joins")).
		WithPanel(rows(panel{title: "Time to reach a stage", about: since, unit: units.Short, width: 8, height: 8,
			queries: []query{
				{"sum by (stage) (" + own("node_join_seconds_count") + ")", ""},
				{quantile(0.5), ""},
				{quantile(0.95), ""},
			}}, "95 %", column{field: "stage", title: "Stage"}, column{field: "Value #A", title: "Nodes"},
			column{field: "Value #B", title: "Median", unit: units.Seconds},
			column{field: "Value #C", title: "95 %", unit: units.Seconds})).
		WithPanel(lines(panel{title: "Joined nodes", about: "Nodes that have reached each stage since the operator started.",
			unit: units.Short, width: 8, height: 8, queries: []query{
				{"sum by (stage) (" + own("node_join_seconds_count") + ")", "{{stage}}"},
			}})).
		WithPanel(bars(panel{title: "Joins by duration", about: "How many nodes were ready after at most so many seconds. " +
			since, unit: units.Short, width: 8, height: 8, queries: []query{
			{"sum by (le) (" + own("node_join_seconds_bucket", `stage="Validated"`) + ")", "{{le}} s"},
		}}, neutral))
}

func operatorUpgrades(b *dashboard.DashboardBuilder) {
	var upgrades []query
	for _, state := range []string{"pending", "available", "in_progress", "done", "failed", "held"} {
		upgrades = append(upgrades, query{"sum(" + own("nodes_upgrades_"+state) + ")", state})
	}
	b.WithRow(section("Upgrades and operands")).
		WithPanel(lines(panel{title: "Driver upgrades", about: "Nodes by the state of the driver's upgrade. Available ones " +
			"are pending, and nothing keeps them from starting; held ones do not go on without help.", unit: units.Short,
			width: 12, height: 9, queries: upgrades})).
		WithPanel(rows(panel{title: "Operands", about: "Nodes that need the operand, and on which it is ready.",
			unit: units.Short, width: 12, height: 9, queries: []query{
				{"sum by (operand) (" + own("operand_nodes_desired") + ")", ""},
				{"sum by (operand) (" + own("operand_nodes_ready") + ")", ""},
				{fmt.Sprintf("sum by (operand) (%s) / (sum by (operand) (%s) > 0)", own("operand_nodes_ready"),
					own("operand_nodes_desired")), ""},
			}}, "Needed on", column{field: "operand", title: "Operand"}, column{field: "Value #A", title: "Needed on"},
			column{field: "Value #B", title: "Ready on"},
			column{field: "Value #C", title: "Share", unit: units.PercentUnit, bar: 1}))
}

func operatorItself(b *dashboard.DashboardBuilder) {
	third := func(title, about, unit, legend, expression string) panel {
		return panel{title: title, about: about, unit: unit, width: 8, height: 8, queries: []query{{expression, legend}}}
	}
	b.WithRow(section("The operator itself")).
		WithPanel(areas(third("API writes", "Write requests, including failed ones. Renewals of the lease are left out: at "+
			"rest there are no others.", units.WritesPerSecond, "{{verb}} {{resource}}",
			rate("verb, resource", own("api_writes_total", `resource!="leases"`))))).
		WithPanel(areas(third("API requests", "All requests, by the answer's code.", units.RequestsPerSecond,
			"{{method}} {{code}}", rate("method, code", foreign("rest_client_requests_total"))))).
		WithPanel(lines(third("Passes", "Passes over the cluster and reconciles of nodes, by result.",
			units.OpsPerSecond, "{{controller}} {{result}}",
			rate("controller, result", foreign("controller_runtime_reconcile_total"))))).
		WithPanel(lines(third("Duration of reconciles", "95th percentile.", units.Seconds, "{{controller}}",
			"histogram_quantile(0.95, "+rate("controller, le",
				foreign("controller_runtime_reconcile_time_seconds_bucket"))+") >= 0"))).
		WithPanel(lines(third("Queues", "Requests that wait.", units.Short, "{{name}}",
			"sum by (name) ("+foreign("workqueue_depth")+")"))).
		WithPanel(lines(panel{title: "Failures", about: "Passes with a failed API call, and Events that were not written " +
			"because there were too many.", unit: units.OpsPerSecond, width: 8, height: 8, queries: []query{
			{"sum(rate(" + own("reconciliation_failed_total") + "[$__rate_interval]))", "failed passes"},
			{rate("kind", own("events_dropped_total")), "dropped Events: {{kind}}"},
		}}))
}
