// Package labels defines every label, annotation and taint key, every host path and every marker name of the
// project, with its writers and readers. It imports no package of the project, so that every other package, the on-node
// program included, can use it.
package labels
