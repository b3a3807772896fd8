// Command bench measures the operator on a real control plane with simulated GPU nodes and compares it with its
// goals: how long a fleet takes to become ready, compared with the same DaemonSets without an operator; the requests
// that it makes for each type of event, counted in the API server's audit log; its CPU and memory usage. "make bench"
// runs it.
//
// A run consists of phases, each of which prints its figures when it ends and stores them in .cache/bench. Repeating
// a phase only replaces its own figures, so that a run can be split. The figures of all phases are written to
// docs/benchmarks.md.
//
// For its limits see package simulator.
package main
