// Package metricsfile checks files that select the metrics of NVIDIA's DCGM exporter, as the exporter reads them at its
// start. It is pure.
package metricsfile
