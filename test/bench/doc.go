// Command bench measures the operator on a real control plane with simulated GPU nodes and compares it with
// its goals: how long a fleet takes to be ready, beside what the same DaemonSets take without an operator; the
// calls that it makes for each thing that may happen, counted in the API server's audit log; what it uses of CPU
// and memory. "make bench" runs it.
//
// A run consists of phases, each of which tells its figures when it ends and keeps them in .cache/bench. A phase
// that is run again replaces its own figures alone, so that a run can be cut into pieces. The figures of all
// phases go to docs/benchmarks.md.
//
// What it cannot show: see package simulator.
package main
