package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func readyRow(name string) row {
	return row{
		name:      name,
		verdict:   readiness.NodeVerdict{Stage: v1.StageValidated},
		condition: operatorStatus(corev1.ConditionTrue, "GPUReady", name+": GPUs can be used"),
	}
}

func rowAt(name string, stage v1.Stage, state readiness.State) row {
	return row{name: name, verdict: readiness.NodeVerdict{Stage: stage, Verdict: readiness.Verdict{State: state}}}
}

func operatorStatus(status corev1.ConditionStatus, reason, message string) *corev1.NodeCondition {
	return &corev1.NodeCondition{Type: labels.ConditionGPUReady, Status: status, Reason: reason, Message: message}
}

// mixed is a cluster with each type of row.
func mixed() frame {
	broken := rowAt("gpu-00001", v1.StageDriver, readiness.Failed)
	broken.condition = operatorStatus(corev1.ConditionFalse, "CrashLoopBackOff",
		"gpu-00001: stage Driver, operand driver: container nvidia-driver-ctr: CrashLoopBackOff, exit code 1")
	return frame{rows: []row{
		readyRow("gpu-00000"), broken,
		rowAt("gpu-00002", v1.StageAllocatable, readiness.Progressing),
		rowAt("gpu-00003", v1.StageDiscovered, readiness.Progressing),
	}}
}

func TestTable(t *testing.T) {
	const want = `
NODE       Discovered  Driver  Toolkit  DevicePlugin  Allocatable  Validated  OPERATOR STATUS
gpu-00000  ✓           ✓       ✓        ✓             ✓            ✓          GPUs can be used
gpu-00001  ✓           ✗       ·        ·             ·            ·          CrashLoopBackOff: stage Driver, operand driver: container nvidia-driver-ctr: CrashLoopBackOff, exit code 1
gpu-00002  ✓           ✓       ✓        ✓             …            ·          -
gpu-00003  …           ·       ·        ·             ·            ·          -`
	if got := "\n" + strings.Join(table(mixed(), style{rows: 20}), "\n"); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	for _, width := range []int{20, 77, 78, 79, 100} {
		for _, line := range table(mixed(), style{rows: 2, width: width}) {
			// Columns are as wide as their headings; only the text after them is truncated.
			if got := utf8.RuneCountInString(line); got > max(width, 79) {
				t.Errorf("width %d: %d columns: %s", width, got, line)
			}
		}
	}
}

func TestTableShowsTheWorst(t *testing.T) {
	f := frame{}
	for i := range 98 {
		f.rows = append(f.rows, readyRow(nodeName(i)))
	}
	f.rows = append(f.rows, rowAt(nodeName(98), v1.StageToolkit, readiness.Progressing),
		rowAt(nodeName(99), v1.StageValidated, readiness.Failed))
	lines := table(f, style{rows: 3})
	var got []string
	for _, line := range lines[1:] {
		got = append(got, strings.Fields(line)[0])
	}
	if want := "gpu-00099 gpu-00098 gpu-00000 and"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := lines[len(lines)-1], "and 97 more nodes, no worse than these"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCounts(t *testing.T) {
	const want = "Discovered 3, Driver 2, Toolkit 2, DevicePlugin 2, Allocatable 1, Validated 1 of 5; failed 1"
	if got := mixed().counts(5); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDone(t *testing.T) {
	policy := func(change func(*v1.ClusterPolicy)) *v1.ClusterPolicy {
		p := &v1.ClusterPolicy{}
		p.Generation = 1
		p.Status = v1.ClusterPolicyStatus{
			State: v1.StateReady, ObservedGeneration: 1, NodeSummary: &v1.NodeSummary{Total: 1, Ready: 1},
		}
		change(p)
		return p
	}
	rows := []row{readyRow("gpu-00000")}
	for name, test := range map[string]struct {
		frame frame
		want  bool
	}{
		"all agree": {frame{policy(func(*v1.ClusterPolicy) {}), rows}, true},
		"no policy": {frame{nil, rows}, false},
		"no status": {frame{&v1.ClusterPolicy{}, rows}, false},
		"not ready": {
			frame{policy(func(p *v1.ClusterPolicy) { p.Status.State = v1.StateNotReady }), rows}, false,
		},
		"of an older spec": {frame{policy(func(p *v1.ClusterPolicy) { p.Generation = 2 }), rows}, false},
		"ready without nodes": {
			frame{policy(func(p *v1.ClusterPolicy) { p.Status.NodeSummary = &v1.NodeSummary{} }), rows}, false,
		},
		"a node does not agree": {
			frame{policy(func(*v1.ClusterPolicy) {}), []row{rowAt("gpu-00000", v1.StageDriver, readiness.Progressing)}}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.frame.done(1); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestLastLine(t *testing.T) {
	for want, r := range map[string]result{
		"cluster-policy: ready, 1/1 GPU nodes":    {frame: frame{rows: []row{readyRow("gpu-00000")}}, ready: true},
		"cluster-policy: notReady, 1/4 GPU nodes": {frame: mixed()},
	} {
		if got := r.lastLine("cluster-policy"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
