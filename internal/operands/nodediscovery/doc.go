// Package nodediscovery is the operand that labels nodes with what they are made of: their GPUs, their
// kernel and their operating system. It runs on every Linux node, and makes Node Feature Discovery
// unnecessary; where that is at work, it keeps its labels. It needs the admission policy that bounds what its
// pods may write on nodes.
package nodediscovery
