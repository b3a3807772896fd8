// Package install tests the installation methods: the chart with the real Helm (what it renders for common values,
// what it refuses and with which message, installation and upgrade on a real control plane), the bundle with a
// simulation of OLM, and that both install the same as kustomize.
package install
