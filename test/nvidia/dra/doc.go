// Package dra has objects that run NVIDIA's DRA driver for GPUs beside the operator, and describes what it publishes.
// The tests of packages nvidia and node share them.
package dra
