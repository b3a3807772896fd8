// Package fieldnotes lists the fields of the ClusterPolicy that are accepted without effect: those that are not
// supported yet, and those that are deprecated, each with what to do instead. It is pure; package status reports the
// notes as conditions, and kubectl gpu prints them.
package fieldnotes
