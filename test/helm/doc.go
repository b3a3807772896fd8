// Package helm tests the chart with the real Helm: what it renders for what people type, what it refuses and
// with which words, that it installs what kustomize installs, and that it can be installed and upgraded on a
// real control plane.
package helm
