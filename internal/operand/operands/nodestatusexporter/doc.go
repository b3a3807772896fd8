// Package nodestatusexporter is the operand that serves metrics of the GPU stack on each node: gpu-node export, with
// its Service, its ServiceMonitor and its alerts.
package nodestatusexporter
