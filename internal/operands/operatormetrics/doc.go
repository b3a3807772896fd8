// Package operatormetrics is the operand that leads Prometheus to the operator's own metrics, and that
// alerts when the operator does not do its work. It has no pods: the Service is that of the operator's.
package operatormetrics
