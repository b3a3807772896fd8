// Package dra has the objects with which users install NVIDIA's DRA driver for GPUs beside the operator, and describes
// what it publishes. The tests of packages nvidia and node share them.
package dra
