// Command generate writes the dashboards for Grafana, config/dashboards/*.json: of the fleet, a node, a job and the
// operator. make dashboards runs it, and make chart copies them into the chart.
//
// Types and names of fields are those of Grafana's own SDK, which is generated from Grafana's schemas
// (github.com/grafana/grafana-foundation-sdk, Apache-2.0, no dependencies). This is a module of its own so that the
// operator does not depend on it.
//
// The queries use the series that the rules of config/monitoring record, so that each value is defined and priced in
// one place. Where these come from the exporter alone, the query has the expression of the rule as well, so that the
// panel works without the rules. Otherwise they use only series of the operator, of its node programs, and of the
// default list of the DCGM exporter, both with the names until its release 4.8 and with those from 4.9 on.
package main
