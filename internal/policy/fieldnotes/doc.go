// Package fieldnotes lists the fields of the ClusterPolicy that are accepted without effect, or with another one than
// their value says: those that are not supported yet, doubtful values, and deprecated fields, each with what to do
// instead. It is pure; package conditions reports the notes, and kubectl gpu prints them.
package fieldnotes
