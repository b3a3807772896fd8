// Package metrics is what the operator tells Prometheus beside the metrics of controller-runtime. All of it is
// known from what the operator does anyway: nothing is asked of the API server for it, and no label has more
// values in a larger cluster. docs/metrics.md lists the names; a test compares.
package metrics
