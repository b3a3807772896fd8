// Package podrules has the rules of Kubernetes for the parts of pods that the API takes from users: the values that
// the API server refuses, or that no kubelet can start, each with the field that has it. It also checks the label
// selectors for pods.
//
// The schema of the API cannot state all of them: a rule about several fields costs too much in lists, and the types
// of Kubernetes have no markers. No library of Kubernetes serves them, so they stand here; a test compares them with a
// real API server.
package podrules
