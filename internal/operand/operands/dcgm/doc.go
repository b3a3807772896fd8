// Package dcgm is the operand that runs a stand-alone engine of the Data Center GPU Manager on each node, for the DCGM
// exporter and other clients on the node.
package dcgm
