//go:build linux

package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// upImage has a name that only make up gives to the image of the test.
const upImage = "localhost/gpu-operator:up-test"

// TestUpAndDown runs make up and make down as a user does: the first ends once the GPUs are ready, the second once
// the cluster is as before. The image is built outside the network of the test, with the C library of this computer.
func TestUpAndDown(t *testing.T) {
	cluster.SkipInSample(t)
	b := newEnv(t)
	b.loadNVIDIA()
	archive := filepath.Join(t.TempDir(), "operator.oci.tar")
	b.Expect(node.BuildOperatorImage(t.Context(), repository, upImage, archive, os.Stderr)).To(Succeed())
	restored := cluster.Restored(t, b.cluster.Config)

	begin := time.Now()
	shown := b.make("up", "LOAD=containerd", "IMG="+upImage, "IMAGE_TAR="+archive)
	t.Logf("make up took %s:\n%s", since(begin), shown)
	b.Expect(shown).To(And(ContainSubstring("The image is loaded by containerd"),
		ContainSubstring("\n1 of 1 nodes ready, 4 of 4 GPUs usable")))
	b.Expect(b.policy()).To(HaveField("Status.State", BeEquivalentTo("ready")))
	b.Expect(b.operators()).To(And(Not(BeEmpty()),
		HaveEach(HaveField("Spec.Containers", HaveEach(HaveField("Image", upImage))))))
	allocatable := b.node(b).Status.Allocatable[gpuResource]
	b.Expect(allocatable.Value()).To(BeEquivalentTo(gpus))

	begin = time.Now()
	shown = b.make("down")
	t.Logf("make down took %s:\n%s", since(begin), shown)
	// NVIDIA's MIG manager has set it, see docs/limitations.md.
	b.Expect(b.node(b).Labels).To(HaveKeyWithValue(nvsmLabel, "true"))
	b.patchLabel(nvsmLabel, "null")
	restored()
	b.make("down") // It can be repeated.
}

// make runs a target of the Makefile with the machine's containerd as that of this computer.
func (b *env) make(args ...string) string {
	b.t.Helper()
	kubectl, err := cluster.EnsureKubectl(repository)
	b.Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(b.t.Context(), "make", append([]string{"-C", repository, "KUBECTL=" + kubectl}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.cluster.Kubeconfig(), "PATH="+binaries(b.t)+":"+os.Getenv("PATH"),
		"CONTAINERD_ADDRESS="+b.machine.Running("/run/containerd/containerd.sock"))
	out, err := cmd.CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), "%s", out)
	return string(out)
}
