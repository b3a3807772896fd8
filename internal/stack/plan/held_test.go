package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// A refused node keeps what runs there: removing a deploy label would delete the pod.
func TestRefusedNodeKeepsItsLabels(t *testing.T) {
	facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime, f.Pool = "", "ubuntu24.04-amd64" })
	got := decide(
		t,
		v1.ClusterPolicySpec{},
	).NodeLabels(
		facts,
		labelled(nil),
		plan.ReadyPods{Driver: true, Injector: true},
	)
	if diff := cmp.Diff(map[string]*string{}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A held operand still runs and writes its marker. A second writer would remove that marker.
func TestHeldToolkitStillWritesItsMarker(t *testing.T) {
	spec := v1.ClusterPolicySpec{
		Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "CONTAINERD_CONFIG", Value: "/x"}}}},
	}
	p := plan.Compute(decide(t, spec), nil, []nodeinfo.Facts{ubuntu("a")})
	for _, step := range p.Steps {
		switch step.Operand.Name {
		case "container-toolkit":
			if step.Action != plan.Hold || step.Reason != v1.ReasonInvalidSpec {
				t.Errorf("the toolkit: %s %s", step.Action, step.Reason)
			}
		case "operator-validator":
			if step.WritesMarkers["driver"] {
				t.Error("the validator writes the driver marker, too")
			}
		}
	}
}

// A driver of the host needs no image, and so no facts that select one.
func TestPreInstalledDriverNeedsNoFacts(t *testing.T) {
	facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) {
		f.OSID, f.Pool, f.Deploy = "", "", map[string]string{"driver": "pre-installed"}
	})
	node := decide(t, v1.ClusterPolicySpec{}).ForNode(facts)
	if node.Essential[0].Operand != "driver" || node.Essential[0].Expectation != plan.HostProvides {
		t.Errorf("got %+v", node.Essential[0])
	}
}
