// Package labels holds every label, annotation and taint key, every host path and every marker
// name of the project, once, with who writes it and who reads it. It contains no behaviour and
// imports nothing, so that every other package, the on-node program included, can use it.
package labels
