package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestReasons(t *testing.T) {
	f := mixed()
	f.policy = &v1.ClusterPolicy{Status: v1.ClusterPolicyStatus{
		State:       v1.StateNotReady,
		NodeSummary: &v1.NodeSummary{ReadyOfTotal: "1/4"},
		Conditions: []metav1.Condition{{
			Type: v1.ConditionReady, Reason: v1.ReasonOperandFailed, Message: "1 of 4 GPU nodes have failed",
		}},
		Nodes: []v1.NodeStatus{
			{Name: "gpu-00000", Ready: true, Stage: v1.StageValidated},
			{
				Name:    "gpu-00001",
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "CrashLoopBackOff",
				Message: "exit code 1",
			},
			{Name: "gpu-00002", Stage: v1.StageAllocatable, Reason: "NotAllocatable", Message: "no GPU"},
		},
	}}
	const want = `
The policy is not ready:
  notReady 1/4, OperandFailed: 1 of 4 GPU nodes have failed
  gpu-00001
    policy status.nodes: stage Driver, operand driver: CrashLoopBackOff: exit code 1
    node condition nvidia.com/GPUReady=False: CrashLoopBackOff: gpu-00001: stage Driver, operand driver: container nvidia-driver-ctr: CrashLoopBackOff, exit code 1
  gpu-00002
    policy status.nodes: stage Allocatable: NotAllocatable: no GPU
    node condition nvidia.com/GPUReady: absent
  gpu-00003
    policy status.nodes: not listed
    node condition nvidia.com/GPUReady: absent
`
	if got := strings.Join(f.reasons(), "\n"); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestReasonsOfManyNodes(t *testing.T) {
	f := frame{policy: &v1.ClusterPolicy{}}
	for i := range 100 {
		f.rows = append(f.rows, rowAt(nodeName(i), v1.StageDriver, readiness.Progressing))
	}
	lines := f.reasons()
	if got, want := lines[len(lines)-2], fmt.Sprintf("  and %d more nodes", 100-maxRows); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 20 {
		values = append(values, time.Duration(20-i))
	}
	for percent, want := range map[float64]time.Duration{50: 10, 95: 19, 100: 20} {
		if got := percentile(values, percent); got != want {
			t.Errorf("p%v: got %d, want %d", percent, got, want)
		}
	}
	if got := percentile(values[:1], 50); got != 20 {
		t.Errorf("of one value: got %d, want 20", got)
	}
}

func TestLinesReportForbiddenRequests(t *testing.T) {
	r := result{ready: true, frame: mixed(), calls: cluster.Calls{{Verb: "list", Resource: "secrets", Code: 403}}}
	if lines := r.lines(); !slices.Contains(lines, "     1 list secrets 403") {
		t.Errorf("the forbidden request is not in %q", lines)
	}
}

func TestHintsEnterTheNetworkNamespace(t *testing.T) {
	for _, own := range []bool{false, true} {
		text := strings.Join(hints("/tmp/kubeconfig", "127.0.0.1:1", own), "\n")
		if got := strings.Contains(text, fmt.Sprintf("nsenter --net=/proc/%d/ns/net", os.Getpid())); got != own {
			t.Errorf("own network %t: %s", own, text)
		}
	}
}
