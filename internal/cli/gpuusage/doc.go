// Package gpuusage computes how much of the GPUs is used, by node and by pod, from what DCGM exporters report. It is
// pure: the text of their metrics in, the numbers out. It owns the JSON that kubectl gpu top prints.
//
// It reads the names and units of exporters up to 4.8 and those of 4.9, which has renamed most series, some with
// another unit.
package gpuusage
