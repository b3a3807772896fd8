// Package ruleset reads PrometheusRules of this repository, and evaluates their rules in Prometheus' own engine.
package ruleset
