//go:build !linux

package main

import (
	"context"
	"errors"
	"io"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// withReal runs the demo, without a real node.
func withReal(run func() int) int { return run() }

// realAvailable returns why no real node can run here.
func realAvailable() error { return errors.New("a real node needs Linux") }

func clusterOptions(options) cluster.Options { return cluster.Options{} }

func addReal(context.Context, *cluster.Cluster, io.Writer) (machine, error) {
	return nil, realAvailable()
}
