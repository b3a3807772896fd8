// Package gpufeaturediscovery is the operand that finds out what the GPUs of a node are: product, memory,
// driver, whether they can be cut or shared. It leaves that in a file, which node discovery turns into
// node labels, or in a NodeFeature, which Node Feature Discovery does.
package gpufeaturediscovery
