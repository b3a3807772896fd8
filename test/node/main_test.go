//go:build linux

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// The variables of what the part of this program with the computer's network has prepared.
const (
	standInVariable       = "TEST_NODE_STAND_IN"
	programsVariable      = "TEST_NODE_PROGRAMS"
	operatorImageVariable = "TEST_NODE_OPERATOR_IMAGE"
	nfdVariable           = "TEST_NODE_NFD"
	pluginVariable        = "TEST_NODE_PLUGIN"
)

// The variables of a bundle, see package gpubundle, which has also set the first of the others.
const (
	// imagesVariable is the folder with the images, those with NVIDIA's programs and the operator's.
	imagesVariable = "TEST_NODE_IMAGES"
	// hostDriverVariable is the folder of a played driver; empty for the driver of this computer.
	hostDriverVariable = "TEST_NODE_HOST_DRIVER"
	// resultsVariable is the file for the results.
	resultsVariable = "TEST_NODE_RESULTS"
)

const (
	repository                 = "../.."
	operatorImage, operatorTag = node.OperatorImage, node.OperatorTag
)

func TestMain(m *testing.M) {
	if err := node.Available(); err != nil {
		fmt.Println("SKIPPED:", err)
		if err := needs.Tolerate(needs.Cgroup, err); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(node.Main(prepare, m.Run))
}

func prepare(ctx context.Context) error {
	if os.Getenv(cluster.PrebuiltVariable) != "" {
		return nil
	}
	_, clusterErr := cluster.EnsureBinaries(ctx, cluster.Newest, os.Stderr)
	_, nodeErr := cluster.EnsureNodeBinaries(ctx, os.Stderr)
	standIn, standInErr := cluster.BuildNodeStandIn(ctx, os.Stderr)
	programs, programsErr := cluster.EnsureNVIDIAPrograms(ctx, os.Stderr, node.Programs()...)
	if err := errors.Join(clusterErr, nodeErr, standInErr, programsErr, os.Setenv(standInVariable, standIn),
		os.Setenv(programsVariable, programs)); err != nil {
		return err
	}
	if os.Getenv(victimVariable) != "" {
		return nil // It has no operator.
	}
	discovery, discoveryErr := cluster.EnsureNFDBinaries(ctx, os.Stderr)
	plugin, pluginErr := cluster.BuildPlugin(ctx, os.Stderr)
	_, kubectlErr := cluster.EnsureKubectl(repository)
	if err := errors.Join(discoveryErr, pluginErr, kubectlErr, os.Setenv(nfdVariable, discovery),
		os.Setenv(pluginVariable, plugin)); err != nil {
		return err
	}
	image := filepath.Join(filepath.Dir(standIn), "operator.oci.tar")
	err := node.BuildOperatorImage(ctx, repository, operatorImage+":"+operatorTag, image, os.Stderr)
	return errors.Join(err, os.Setenv(operatorImageVariable, image))
}

// binaries returns the folder of the node's programs, which exists.
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
