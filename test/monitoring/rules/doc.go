// Package rules tests the alerts and recording rules of config/monitoring, and those that the operator creates, with
// Prometheus' own engine.
package rules
