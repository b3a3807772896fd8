// Package assess is the one place that assesses a node: a pure function of what the spec decides for it, its Node, its
// pods, what is known of the stack, and the time. A verdict is typed; no caller reads meaning out of its sentences. Report
// is what is reported of the assessments of one node, with changes for the worse damped.
package assess
