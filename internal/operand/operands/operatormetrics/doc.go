// Package operatormetrics is the operand that exposes the operator's own metrics to Prometheus, with alerts for an
// operator that does not work. It has no pods: its Service selects the operator's.
package operatormetrics
