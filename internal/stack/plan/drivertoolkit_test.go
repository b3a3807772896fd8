package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	release     = "417.94.202503172034-0"
	nextRelease = "418.94.202501221327-0"
	coreOSPool  = "rhcos4.18-amd64"
)

// coreOS returns a node with that release of Red Hat CoreOS, labelled with a pool.
func coreOS(name, release, pool, poolRelease string) nodeinfo.Facts {
	return changed(ubuntu(name), func(f *nodeinfo.Facts) {
		f.OSID, f.OSVersion, f.OSTree, f.Pool, f.PoolCoreOS = "rhcos", "4.18", release, pool, poolRelease
	})
}

func toolkitSpec(on bool) v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{UseOCPDriverToolkit: &on}}
}

// A pool without a driver toolkit does not affect the others, and its running driver stays.
func TestDriverToolkitPools(t *testing.T) {
	both := map[string]string{release: "example.com/dtk:417", nextRelease: "example.com/dtk:418"}
	const image = "nvcr.io/nvidia/driver:595.91.07-rhcos4.18"
	tests := map[string]struct {
		spec   v1.ClusterPolicySpec
		nodes  []nodeinfo.Facts
		images map[string]string
		want   map[string]string
		hold   bool
	}{
		"two releases have two drivers, and other systems their own": {
			nodes: []nodeinfo.Facts{coreOS("a", release, "", ""), coreOS("b", nextRelease, "", ""), ubuntu("c")}, images: both,
			want: map[string]string{
				coreOSPool + "-" + release:     image,
				coreOSPool + "-" + nextRelease: image,
				"ubuntu24.04-amd64":            "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04",
			},
		},
		"one release has no toolkit": {
			nodes: []nodeinfo.Facts{coreOS("a", release, "", ""), coreOS("b", "418.94.1-0", "", "")}, images: both,
			want: map[string]string{coreOSPool + "-" + release: image}, hold: true,
		},
		"the toolkit of a running driver is missing": {
			nodes: []nodeinfo.Facts{coreOS("a", release, coreOSPool+"-"+release, release), ubuntu("c")},
			want:  map[string]string{"ubuntu24.04-amd64": "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"}, hold: true,
		},
		"a node with another release keeps the driver of the old one": {
			nodes: []nodeinfo.Facts{coreOS("a", nextRelease, coreOSPool+"-"+release, release)}, images: both,
			want: map[string]string{coreOSPool + "-" + release: image},
		},
		"disabled: running drivers are held, new nodes are served": {
			spec:   toolkitSpec(false),
			nodes:  []nodeinfo.Facts{coreOS("a", release, coreOSPool+"-"+release, release), coreOS("b", release, "", "")},
			images: both,
			want:   map[string]string{coreOSPool: image}, hold: true,
		},
		"enabled: running drivers are held": {
			nodes: []nodeinfo.Facts{coreOS("a", release, coreOSPool, "")}, images: both, want: map[string]string{}, hold: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.Compute(
				plan.Decide(catalogue(t), operand.Input{Spec: effective.Of(test.spec), DriverToolkit: test.images}),
				nil,
				test.nodes,
			)
			expectDrivers(t, p, test.want, test.hold)
		})
	}
}

// A node is moved to the pool of its release when no driver runs, as after the reboot of an upgrade.
func TestDriverToolkitPoolLabels(t *testing.T) {
	const old, next = coreOSPool + "-" + release, coreOSPool + "-" + nextRelease
	tests := map[string]struct {
		facts     nodeinfo.Facts
		off       bool
		hasDriver bool
		want      map[string]*string
	}{
		"a new node": {
			facts: coreOS("a", release, "", ""),
			want:  map[string]*string{poolLabel: set(old), coreOSLabel: set(release)},
		},
		"settled":                       {facts: coreOS("a", release, old, release), hasDriver: true},
		"another release with a driver": {facts: coreOS("a", nextRelease, old, release), hasDriver: true},
		"another release without driver": {
			facts: coreOS("a", nextRelease, old, release),
			want:  map[string]*string{poolLabel: set(next), coreOSLabel: set(nextRelease)},
		},
		"the release's label is missing": {
			facts:     coreOS("a", release, old, ""),
			hasDriver: true,
			want:      map[string]*string{coreOSLabel: set(release)},
		},
		"disabled with a driver": {facts: coreOS("a", release, old, release), off: true, hasDriver: true},
		"disabled without driver": {
			facts: coreOS("a", release, old, release),
			off:   true,
			want:  map[string]*string{poolLabel: set(coreOSPool), coreOSLabel: removed},
		},
		"an unknown release": {facts: coreOS("a", "", old, release)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			current := map[string]string{}
			for key, value := range map[string]string{poolLabel: test.facts.Pool, coreOSLabel: test.facts.PoolCoreOS} {
				if value != "" {
					current[key] = value
				}
			}
			p := decide(t, toolkitSpec(!test.off))
			got := map[string]*string{}
			for key, value := range p.NodeLabels(test.facts, current, plan.ReadyPods{Driver: test.hasDriver, Injector: true}) {
				if key == poolLabel || key == coreOSLabel {
					got[key] = value
				}
			}
			if test.want == nil {
				test.want = map[string]*string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
