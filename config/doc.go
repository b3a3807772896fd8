// Package config builds the kustomizations of this folder, for the generators of the chart and of the bundle
// and for the tests, so that all install what kubectl apply -k does.
package config
