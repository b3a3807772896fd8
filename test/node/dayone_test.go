//go:build linux

package node_test

import (
	"testing"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestGPUsAfterDayOne shares and partitions the GPUs of a node that works, and lets them fail: what must follow on a
// real kubelet does, and nothing else restarts.
func TestGPUsAfterDayOne(t *testing.T) {
	cluster.SkipInSample(t)
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	begin := time.Now()
	policy := samplePolicy()
	policy.Spec.Health = &v1.HealthSpec{
		Agent:   &v1.HealthAgentSpec{Enabled: new(true)},
		Actions: &v1.HealthActionsSpec{All: v1.HealthActionTaint, Dwell: "0s"},
	}
	policy.Spec.Validator = &v1.ValidatorSpec{ContainerSpec: v1.ContainerSpec{
		Env: []v1.EnvVar{{Name: "RECHECK_INTERVAL", Value: recheckInterval.String()}},
	}}
	b.createPolicy(policy)
	b.stages(begin)
	b.awaitReady()
	runParts(b.run, []part[*env]{
		{"faults of GPUs", (*env).checkFaults},
		{"a GPU lost later", (*env).checkRecheck},
		{"shared by a ConfigMap", (*env).checkSharing},
		{"shared by the policy", (*env).checkTypedSharing},
		{"shared by MPS", (*env).checkMPS},
		{"partitioned GPUs", (*env).checkPartitions},
		{"at rest", (*env).checkRest},
	})
}
