// Package assess owns the assessment of a node: the verdict on the node and on each operand there, and the report of
// it, which is what the condition nvidia.com/GPUReady shows. The status of the policy shows the report, too, except for
// a node that is ready neither in the report nor in the latest assessment: there it shows the latest.
//
// An assessment is a pure function of Input: the plan for the node, its Node and pods, the stack's DaemonSets, what
// other programs and earlier assessments have left, and the time. The verdict is that of its stages first. The table in
// checks.go has the checks that follow: for which nodes each is made, and how its finding combines with the verdict so
// far. Nothing else may assess nodes. The node controller does once in a reconcile, and again when it has read which
// pods the kubelet refused.
//
// Programs read back the Record of a node, never the message of a condition. MessageUpToDate compares a message that is
// written with the one to be written.
package assess
