// Package healthaction plans what is done with nodes that have an unhealthy GPU: a taint, a cordon, or nothing, and
// what keeps it from being done. It is pure: the nodes, the policy and the time in; steps and a report out. Package
// controller/healthaction reads the input and carries out the steps.
//
// All state is on the Nodes, so that the limit holds over crashes and with two managers. An action takes two writes:
// the first one adds a Record to the Node, which claims a place; the second one acts, once the planner has read the
// claim and there are no more records than places. A cache shows the Nodes as of one time, so that a planner that reads
// its claim also reads all earlier ones: of two managers, the one that claims later reads both. Each write has the
// preconditions UID and resourceVersion, so that a claim is used once.
package healthaction
