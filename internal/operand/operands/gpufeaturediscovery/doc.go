// Package gpufeaturediscovery is the operand that detects the properties of a node's GPUs: product, memory, driver,
// whether they can be partitioned or shared. It writes them to a file, from which node discovery labels the node, or to
// a NodeFeature, from which Node Feature Discovery does.
package gpufeaturediscovery
