// Package pinned finds the programs that tests run and that modules below test/tools pin, such as
// kube-score, where make keeps them.
package pinned
