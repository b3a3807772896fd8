// Package healthaction plans what is done with nodes that have an unhealthy GPU: a taint, a cordon, or nothing, and
// what keeps it from being done. It is pure: the nodes, the policy and the time in; steps and a report out. Package
// controller/healthaction reads the input and carries out the steps.
//
// All state is on the Nodes. How many nodes are acted on is limited, whoever writes and whenever it stops: a node gets
// a Record first, which claims a place, and the action follows once the claim is seen with not more records than
// places. A cache shows the Nodes as they were at some time, so that who sees its claim also sees all earlier ones: of
// two managers, the one that claims later sees both. Each write has the preconditions UID and resourceVersion, so that
// a claim is used once.
package healthaction
