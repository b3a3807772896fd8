package allnodes_test

import (
	"cmp"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

func TestIsDue(t *testing.T) {
	now, decisions := time.Unix(1000, 0), &plan.Decisions{}
	delays := allnodes.DefaultDelays()
	node := func(version uint64, managed bool) *fleet.Entry {
		return &fleet.Entry{Facts: nodeinfo.Facts{HasGPU: managed}, BasisVersion: version}
	}
	for name, test := range map[string]struct {
		basis    *fleet.Basis
		unknown  bool
		node     *fleet.Entry
		due      bool
		requeued time.Duration
	}{
		"no pass of the policy yet":    {},
		"nodes are unknown":            {basis: &fleet.Basis{Decisions: decisions}, unknown: true},
		"NVIDIA's operator is at work": {basis: &fleet.Basis{KeepNodes: true}},
		"no policy":                    {basis: &fleet.Basis{}, node: node(1, true), due: true},
		"the spec is known":            {basis: &fleet.Basis{Decisions: decisions, KeepNodes: true}, due: true},
		"all are assessed":             {basis: &fleet.Basis{Decisions: decisions, Since: now}, due: true},
		"one is not managed": {
			basis: &fleet.Basis{Decisions: decisions, Since: now}, node: node(1, false), due: true,
		},
		"one is assessed by another one": {
			basis: &fleet.Basis{Decisions: decisions, Since: now}, node: node(1, true), requeued: delays.Assessment,
		},
		"one has been for a while": {basis: &fleet.Basis{Decisions: decisions}, node: node(1, true), due: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pass := allnodes.Pass{Delays: &delays, Now: now, Basis: test.basis}
			nodes := []*fleet.Entry{node(0, true), cmp.Or(test.node, node(0, true))}
			g.Expect(pass.IsDue(!test.unknown, nodes)).To(Equal(test.due))
			result, err := pass.Result(time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.requeued))
		})
	}
}

// The next pass is when the plan ends, but never at once, or before that if something else is due.
func TestResult(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct{ until, other, want time.Duration }{
		{-time.Second, 0, time.Millisecond}, {time.Second, 0, time.Second}, {time.Minute, time.Second, time.Second},
	} {
		pass := allnodes.Pass{Now: now}
		pass.RequeueAfter(test.other)
		result, err := pass.Result(now.Add(test.until))
		if err != nil || result.RequeueAfter != test.want {
			t.Errorf("after %s, want %s", result.RequeueAfter, test.want)
		}
	}
}
