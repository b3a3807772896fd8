// Package assess owns the assessment of a node: the verdict on the node and on each operand there, and the report of
// it, which is what the condition nvidia.com/GPUReady and the status of the policy show.
//
// An assessment is a pure function of the plan for the node, its Node and pods, the stack's DaemonSets, and the time.
// Nothing else may assess nodes, and no caller may parse messages. The node controller calls it in each reconcile.
package assess
