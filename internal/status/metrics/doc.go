// Package metrics has the operator's own Prometheus metrics, in addition to those of controller-runtime. The
// controllers report what they do to a Meter: collecting never calls the API server, and the number of series does not
// grow with the cluster. docs/metrics.md lists the names, which a test compares.
//
// Metrics that count nodes are here: pass.go and join.go. What a node serves about itself is in onnode/export and
// onnode/health.
package metrics
