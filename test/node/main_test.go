//go:build linux

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// Built programs, which the part of the program that has this computer's network prepares.
const standInVariable = "TEST_NODE_STAND_IN"

func TestMain(m *testing.M) {
	if err := node.Available(); err != nil {
		fmt.Println("SKIPPED:", err)
		return
	}
	os.Exit(node.Main(prepare, m.Run))
}

func prepare(ctx context.Context) error {
	_, clusterErr := cluster.EnsureBinaries(ctx, cluster.Newest, os.Stderr)
	_, nodeErr := cluster.EnsureNodeBinaries(ctx, os.Stderr)
	standIn, err := cluster.BuildNodeStandIn(ctx, os.Stderr)
	return errors.Join(clusterErr, nodeErr, err, os.Setenv(standInVariable, standIn))
}

// binaries are the node's programs, which are there.
func binaries(t *testing.T) string {
	t.Helper()
	dir, err := cluster.EnsureNodeBinaries(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
