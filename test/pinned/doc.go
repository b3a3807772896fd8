// Package pinned finds the tools that tests run and modules below test/tools pin, such as kube-score, in the cache of
// make.
package pinned
