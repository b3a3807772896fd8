package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	realName = "real"
	realGPUs = 4
)

// withReal runs the demo in a separate network namespace, which a real node shares with the control plane.
func withReal(run func() int) int {
	return node.Main(func(ctx context.Context) error {
		if _, err := buildAll(ctx, os.Stdout); err != nil {
			return err
		}
		_, err := buildReal(ctx, os.Stdout)
		return err
	}, run)
}

// realAvailable returns why no real node can run here; nil if one can.
func realAvailable() error {
	if node.Part() {
		return nil // Checked before.
	}
	return node.Available()
}

// realPrograms are the programs of a real node.
type realPrograms struct{ binaries, standIn, image string }

func buildReal(ctx context.Context, progress io.Writer) (realPrograms, error) {
	var built realPrograms
	// Always build the newest control plane: the kubelet must not be newer than it.
	_, err := cluster.EnsureBinaries(ctx, cluster.Newest, progress)
	if err != nil {
		return built, err
	}
	if built.binaries, err = cluster.EnsureNodeBinaries(ctx, progress); err != nil {
		return built, err
	}
	// The machine has the files, but not this computer's folders.
	if built.binaries, err = filepath.EvalSymlinks(built.binaries); err != nil {
		return built, fmt.Errorf("find the programs of a real node: %w", err)
	}
	if built.standIn, err = cluster.BuildNodeStandIn(ctx, progress); err != nil {
		return built, err
	}
	built.image = filepath.Join(filepath.Dir(built.standIn), "demo.oci.tar")
	if node.Part() {
		return built, nil // Built before, when there was a network.
	}
	return built, node.BuildOperatorImage(ctx, ".", operatorImage, built.image, progress)
}

// clusterOptions sets the address at which a real node, if any, reaches the API server.
func clusterOptions(opts options) cluster.Options {
	if !opts.real {
		return cluster.Options{}
	}
	return cluster.Options{Version: cluster.Newest, Address: node.Address}
}

// addReal adds a node with a kubelet, and with images under NVIDIA's names that contain the stand-in.
func addReal(ctx context.Context, c *cluster.Cluster, progress io.Writer) (machine, error) {
	fmt.Fprintf(progress, "Booting %s, a node with containerd and a kubelet ...\n", realName)
	built, err := buildReal(ctx, io.Discard)
	if err != nil {
		return nil, err
	}
	if _, err := node.StartServices(ctx, c.SimulatorConfig); err != nil {
		return nil, err
	}
	m, err := node.New(node.Options{
		Name: realName, Binaries: built.binaries, StandIn: built.standIn, Kubeconfig: c.KubeletKubeconfig(), GPUs: realGPUs,
	})
	if err != nil {
		return nil, err
	}
	if err := m.PowerOn(ctx); err != nil {
		return nil, err
	}
	if err := loadImages(ctx, m, built); err != nil {
		return nil, errors.Join(err, m.PowerOff())
	}
	return m, nil
}

func loadImages(ctx context.Context, m *node.Machine, built realPrograms) error {
	dir, err := os.MkdirTemp("", "gpu-operator-libraries-")
	if err != nil {
		return fmt.Errorf("build the stand-ins of NVIDIA's libraries: %w", err)
	}
	stack, err := fakegpu.BuildIn(ctx, dir)
	if err != nil {
		return err
	}
	all := []byte(strings.Repeat("gpu ", realGPUs))
	if err := os.WriteFile(filepath.Join(stack.Lib, "FAKE_GPUS"), all, 0o600); err != nil {
		return fmt.Errorf("describe the GPUs to NVIDIA's libraries: %w", err)
	}
	images, err := node.NVIDIAImages(built.standIn, filepath.Join(stack.Lib, "libcuda.so.1"))
	if err != nil {
		return err
	}
	for _, image := range append(images, node.PauseImage(built.standIn)) {
		archive, err := image.Archive()
		if err != nil {
			return err
		}
		if err := m.Import(ctx, bytes.NewReader(archive)); err != nil {
			return err
		}
	}
	archive, err := os.Open(built.image)
	if err != nil {
		return fmt.Errorf("read the operator's image: %w", err)
	}
	defer archive.Close()
	return m.Import(ctx, archive)
}
