// Package export tells the state of the GPU stack on this node as Prometheus metrics: those of NVIDIA's
// node status exporter, with the same names, label and meanings, and gpu_operator_node_stage_seconds.
//
// # What is true at the time of a scrape
//
// The metrics *_ready are read from the markers when they are scraped, so they have no lag; NVIDIA's
// look for the files every 30 s. A marker counts only if a wait on this node would take it: it is of
// this boot and of the present driver container. NVIDIA's count any file.
//
// NVIDIA's validator deletes all markers when its pod ends, so that a restart of the validator shows as
// a node without driver, toolkit, CUDA and plugin until all are proved again. Here each prover removes
// its own marker only, right before it proves its part anew: *_ready is 0 for the second that this
// takes, for one part after the other, and longer only where the part does not work any more. The pod
// that does not come back leaves the metrics as they were, since what they tell is still true.
//
// The driver is checked once a minute in the background, by the check of gpu-node validate driver
// without its links in /dev/char. A check that does not end counts as failed, and no second one is
// started beside it. gpu_operator_node_driver_validation is absent until the first one has ended.
//
// The Node is read only when the metrics are scraped, and at most every 30 s. PCI devices are read
// from sysfs with each scrape; only GPUs count, where NVIDIA's counts every line of lspci with its
// name, such as NVSwitches and audio functions.
//
// # How long a stage takes
//
// gpu_operator_node_stage_seconds tells how long each stage of the node took or, of the first one
// that is not reached, has taken so far:
//
//   - The first stage, the driver, took from the start of its prover (STARTED_AT in the marker, to the
//     second) until its marker was written. While it is not reached it counts from the start of this
//     program or, if that is later, from the scrape that first missed the marker: nothing on the node
//     tells more.
//   - Each later stage took from the marker before it to its own. While it is not reached it counts
//     from the marker before it.
//   - A stage after one that is not reached has no value.
//
// A marker that is written again would make nonsense of this: the toolkit proved again a week after
// the driver did not take a week. So a marker tells that it is one of a prover that found a good one
// (RENEWED), and then the stage took from the start of this prover. While it is not there yet, the
// stage counts from the scrape that first missed it; a program that was started in between has not
// seen it, and counts from the marker before. A prover that gives up or is killed leaves both, since
// when it has tried and whether there was a good marker, to the next one, in labels.ProvingSuffix: a
// stage took from the start of the first of them. Another boot or driver ends that. A stage whose
// marker is older than the marker before it, as the toolkit's after the driver alone was proved again,
// has no value until it is proved again itself: how long it took is not known any more. No value is
// ever negative, whatever the clock does.
package export
