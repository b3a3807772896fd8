package assess_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// What the health agent reports becomes a condition of its own, and a lost GPU makes the node unready.
func TestHealthCondition(t *testing.T) {
	const (
		lost = `{"pci":"0000:1b:00.0","class":"Reboot","reason":"GPULost","xid":79,"since":"2026-11-25T12:03:00Z"}`
		ecc  = `{"pci":"0000:05:00.0","uuid":"GPU-0b2a","class":"Reset","reason":"GPUUncorrectableECC","xid":48,` +
			`"since":"2026-11-25T12:04:00Z"}`
		lostText = "GPU 0000:1b:00.0 lost since 2026-11-25T12:03:00Z, Xid 79"
	)
	tests := map[string]struct {
		reporter   operand.Name
		annotation string
		boot       string
		ready      bool
		want       string
	}{
		"no agent": {annotation: `{"boot":"b","faults":[` + lost + `]}`, ready: true},
		"an agent that has not reported": {
			reporter: "agent", ready: true,
			want: "Unknown GPUHealthUnknown: a: the health agent has not reported yet",
		},
		"a report of an earlier boot": {
			reporter: "agent", annotation: `{"boot":"b","faults":[` + lost + `]}`, boot: "next", ready: true,
			want: "Unknown GPUHealthUnknown: a: the health agent has not reported since the boot of the node",
		},
		"a malformed report": {
			reporter: "agent", annotation: `{"boot":"<b>"}`, boot: "b", ready: true,
			want: "Unknown GPUHealthUnknown: a: the report of GPU faults is not one of the health agent: " +
				`it has boot "<b>" and 0 faults`,
		},
		"no faults": {
			reporter: "agent", annotation: `{"boot":"b","faults":[]}`, boot: "b", ready: true,
			want: "True GPUsHealthy: a: no GPU needs a reset, a reboot or a person",
		},
		"the kubelet has not reported the boot": {
			reporter: "agent", annotation: `{"boot":"b","faults":[]}`, ready: true,
			want: "True GPUsHealthy: a: no GPU needs a reset, a reboot or a person",
		},
		"a GPU that needs a reset": {
			reporter: "agent", annotation: `{"boot":"b","faults":[` + ecc + `]}`, boot: "b", ready: true,
			want: "False GPUUncorrectableECC: a: GPU-0b2a (0000:05:00.0) needs a reset since 2026-11-25T12:04:00Z, Xid 48",
		},
		"a lost GPU and another": {
			reporter: "agent", annotation: `{"boot":"b","faults":[` + lost + `,` + ecc + `]}`, boot: "b",
			want: "False GPULost: a: " + lostText +
				"; GPU-0b2a (0000:05:00.0) needs a reset since 2026-11-25T12:04:00Z, Xid 48",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gpus := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
			node := gpuNode(gpus, gpus)
			node.Status.NodeInfo.BootID = test.boot
			if test.annotation != "" {
				node.Annotations = map[string]string{"nvidia.com/gpu-operator.gpu-health": test.annotation}
			}
			found := assess.Node(assess.Input{
				NodePlan: plan.NodePlan{
					Spec: effective.Of(v1.ClusterPolicySpec{}), NeedsAllocatable: true, HealthReporter: test.reporter,
				},
				Node: node, Now: time.Unix(1_000_000, 0),
			})
			got := ""
			if condition := found.HealthCondition("a"); condition != nil {
				if condition.Type != "nvidia.com/GPUHealthy" {
					t.Errorf("condition %s", condition.Type)
				}
				got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if found.Ready() != test.ready {
				t.Errorf("ready: %v, %s", found.Ready(), found.Message)
			}
		})
	}
}

// Notes that the assessment before did not have are one Event.
func TestNewHealthNotes(t *testing.T) {
	now := time.Date(2026, 11, 25, 13, 0, 0, 0, time.UTC)
	note := func(pci, reason string, xid int, minute int) gpuhealth.Note {
		return gpuhealth.Note{PCI: pci, Reason: reason, Xid: xid, Since: time.Date(2026, 11, 25, 12, minute, 0, 0, time.UTC)}
	}
	first := note("0000:05:00.0", "GPURowRemapPending", 63, 10)
	others := []gpuhealth.Note{
		note("0000:06:00.0", "GPURowRemapPending", 63, 10), note("0000:05:00.0", "GPUThrottled", 63, 10),
		note("0000:05:00.0", "GPURowRemapPending", 64, 10), note("0000:05:00.0", "GPURowRemapPending", 63, 11),
	}
	text := func(n gpuhealth.Note) string { return n.Reason + ": " + n.Text() }
	transition := func(n gpuhealth.Note) string {
		return fmt.Sprintf("%s %s %d %d", n.PCI, n.Reason, n.Xid, n.Since.Unix())
	}
	for name, test := range map[string]struct {
		before *assess.Health
		notes  []gpuhealth.Note
		want   *assess.HealthNotes
	}{
		"none": {},
		"known": {
			before: &assess.Health{Report: gpuhealth.Report{Notes: []gpuhealth.Note{first}}}, notes: []gpuhealth.Note{first},
		},
		"an old": {notes: []gpuhealth.Note{note("0000:05:00.0", "GPURowRemapPending", 63, 0)}},
		"the last": {notes: []gpuhealth.Note{first}, want: &assess.HealthNotes{
			Reason: first.Reason, Message: "a: " + text(first), Transition: transition(first),
		}},
		"four besides a known one": {
			before: &assess.Health{Report: gpuhealth.Report{Notes: []gpuhealth.Note{first}}},
			notes:  append([]gpuhealth.Note{first}, others...),
			want: &assess.HealthNotes{
				Reason:  "GPURowRemapPending",
				Message: "a: " + text(others[0]) + "; " + text(others[1]) + "; " + text(others[2]) + "; and 1 more",
				Transition: transition(others[0]) + "; " + transition(others[1]) + "; " + transition(others[2]) + "; " +
					transition(others[3]),
			},
		},
		"three": {notes: others[:3], want: &assess.HealthNotes{
			Reason: others[0].Reason, Message: "a: " + text(others[0]) + "; " + text(others[1]) + "; " + text(others[2]),
			Transition: transition(others[0]) + "; " + transition(others[1]) + "; " + transition(others[2]),
		}},
	} {
		a := assess.Assessment{Health: &assess.Health{Report: gpuhealth.Report{Notes: test.notes}}}
		if diff := cmp.Diff(test.want, a.NewHealthNotes(test.before, "a", now)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if found := (&assess.Assessment{}).NewHealthNotes(nil, "a", now); found != nil {
		t.Errorf("without an agent: %v", found)
	}
}
