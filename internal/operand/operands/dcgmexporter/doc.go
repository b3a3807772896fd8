// Package dcgmexporter is the operand that serves metrics of the GPUs: NVIDIA's DCGM exporter, with its Service
// and its ServiceMonitor.
package dcgmexporter
