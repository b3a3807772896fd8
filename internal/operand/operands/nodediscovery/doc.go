// Package nodediscovery is the operand that labels nodes with their GPUs, kernel and operating system. It runs on every
// Linux node and replaces Node Feature Discovery; where that runs, its labels are kept. It needs the admission policy
// that restricts what its pods may write to nodes.
package nodediscovery
