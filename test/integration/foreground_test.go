package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestForegroundDeletionIsRefused: the garbage collector would delete the DaemonSets of nodes whose GPUs are in use, so
// a policy cannot be deleted in the foreground unless spec.removal.force is set. Then nothing is left of it, either.
func TestForegroundDeletionIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	restored := cluster.Restored(t, e.cluster.Config)
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	err := e.client.Delete(t.Context(), e.policy(), foreground)
	e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	e.Expect(err).To(MatchError(ContainSubstring(
		"would end the drivers of all nodes at once, also where GPUs are in use: delete it in the background")))
	e.Expect(e.policy().DeletionTimestamp).To(BeNil())
	err = e.client.DeleteAllOf(t.Context(), &v1.ClusterPolicy{}, foreground)
	e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

	e.respec(func(spec *v1.ClusterPolicySpec) { spec.Removal = &v1.RemovalSpec{Force: new(true)} })
	e.Expect(e.client.Delete(t.Context(), e.policy(), foreground)).To(Succeed())
	e.awaitNoPolicy()
	e.expectNothingLeft("gpu-00000")
	restored()
}
