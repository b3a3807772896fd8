// Package install tests the ways in which the operator is installed. The chart with the real Helm: what it renders
// for what people type, what it refuses and with which words, and that it can be installed and upgraded on a real
// control plane. The bundle with a player of what OLM does. And that both bring what kustomize brings.
package install
