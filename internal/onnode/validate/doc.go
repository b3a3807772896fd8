// Package validate proves that a part of the GPU stack works on this node, again and again until it
// does, and then writes the marker for which the containers of other operands wait. It is the only
// writer of the markers in labels.ValidationsDir.
//
// run.go is the loop that all components share; driver.go, toolkit.go and plugin.go are what each of
// them tries; smi.go runs nvidia-smi and puts its exit codes into words.
package validate
