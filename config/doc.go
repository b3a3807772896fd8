// Package config builds the kustomizations of this folder for the generators of the chart and the bundle and for the
// tests, so that all install the same as kubectl apply -k. It also has the icon that chart and bundle show.
package config
