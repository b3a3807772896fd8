// Package export exports the state of the GPU stack on this node as Prometheus metrics: those of NVIDIA's node status
// exporter, with the same names, label and meanings, and gpu_operator_node_stage_seconds.
//
// # State at the time of a scrape
//
// The metrics *_ready are read from the markers at each scrape, so they have no lag; NVIDIA's exporter looks for the
// files every 30 s. A marker counts if it is of this boot and of the current driver container. Unlike gpu-node wait,
// the exporter does not look whether the kernel module is loaded. NVIDIA's exporter counts any file.
//
// NVIDIA's validator deletes all markers when its pod ends, so that its restart looks like a node without driver,
// toolkit, CUDA and plugin until all are validated again. Here each container removes only its own marker, right before
// it validates its part again: *_ready is 0 for the second that this takes, for one part after the other, and longer
// only if the part no longer works. If the pod does not come back, the metrics stay as they were, which is still true.
//
// The driver is checked once a minute in the background, by the check of gpu-node validate driver without its links in
// /dev/char. A check that does not end counts as failed, and no second one is started next to it.
// gpu_operator_node_driver_validation is absent until the first one has ended.
//
// The Node is read only when the metrics are scraped, and at most every 30 s. PCI devices are read from sysfs with each
// scrape; only GPUs count, where NVIDIA's exporter counts every line of lspci with its name, such as NVSwitches and
// audio functions.
//
// # How long a validation takes
//
// gpu_operator_node_stage_seconds is how long the validation behind each marker took or, for the first marker that is
// missing, has taken so far. Its label stage is the name of the marker.
//
//   - The first one, the driver's, took from its start (STARTED_AT in the marker, to the second) until its marker was
//     written. While the marker is missing it counts from the start of this program or, if that is later, from the
//     scrape that first missed the marker: the node has no better time.
//   - Each later one took from the previous marker to its own. While its marker is missing it counts from the previous
//     marker.
//   - A marker after a missing one has no value.
//
// A marker that is written again would break this: a toolkit that is validated again a week after the driver did not
// take a week. So a marker with RENEWED replaces one that was valid, and its value counts from the start of this
// validation. Until it is written, the value counts from the scrape that first missed it; an exporter that was started
// in between has not seen it, and counts from the previous marker. A validation that fails or is killed leaves its
// start, and whether there was a valid marker, to the next one, in labels.ProgressSuffix: the value counts from the
// start of the first of them, in the same boot and with the same driver. A marker that is older than the previous one,
// as the toolkit's after only the driver was validated again, has no value until it is validated again itself: its
// duration is unknown. No value is ever negative, even if the clock is set back.
package export
