package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	poolLabel   = "nvidia.com/gpu-operator.pool"
	kernelLabel = "nvidia.com/gpu-operator.pool-kernel"
	coreOSLabel = "nvidia.com/gpu-operator.pool-coreos"
	kernel      = "6.8.0-51-generic"
	newer       = "6.8.0-52-generic"
)

func precompiledSpec(on bool) v1.ClusterPolicySpec {
	return v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UsePrecompiled: &on, ImageSpec: v1.ImageSpec{Version: "595"}}}
}

// inPool returns a node with that kernel, labelled with a pool.
func inPool(name, kernel, pool, poolKernel string) nodeinfo.Facts {
	return changed(ubuntu(name), func(f *nodeinfo.Facts) { f.Kernel, f.Pool, f.PoolKernel = kernel, pool, poolKernel })
}

// A node keeps its driver until it is moved: the DaemonSet of its pool is neither changed nor removed.
func TestPrecompiledPools(t *testing.T) {
	const pool = "ubuntu24.04-amd64"
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []nodeinfo.Facts
		want  map[string]string
		hold  bool
	}{
		"two kernels have two drivers": {
			spec: precompiledSpec(true), nodes: []nodeinfo.Facts{inPool("a", kernel, "", ""), inPool("b", newer, "", "")},
			want: map[string]string{
				pool + "-" + kernel: "nvcr.io/nvidia/driver:595-" + kernel + "-ubuntu24.04",
				pool + "-" + newer:  "nvcr.io/nvidia/driver:595-" + newer + "-ubuntu24.04",
			},
		},
		"a node with another kernel keeps the driver of the old one": {
			spec: precompiledSpec(true), nodes: []nodeinfo.Facts{inPool("a", newer, pool+"-"+kernel, kernel)},
			want: map[string]string{pool + "-" + kernel: "nvcr.io/nvidia/driver:595-" + kernel + "-ubuntu24.04"},
		},
		"enabled: running drivers are held": {
			spec: precompiledSpec(true), nodes: []nodeinfo.Facts{inPool("a", kernel, pool, "")},
			want: map[string]string{}, hold: true,
		},
		"disabled: running drivers are held, new nodes are served": {
			spec:  precompiledSpec(false),
			nodes: []nodeinfo.Facts{inPool("a", kernel, pool+"-"+kernel, kernel), inPool("b", kernel, "", "")},
			want:  map[string]string{pool: "nvcr.io/nvidia/driver:595-ubuntu24.04"}, hold: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			expectDrivers(t, plan.Compute(decide(t, test.spec), nil, test.nodes), test.want, test.hold)
		})
	}
}

// expectDrivers fails unless the plan applies these images to the pools, and holds other pools as expected.
func expectDrivers(t *testing.T, p plan.Plan, want map[string]string, hold bool) {
	t.Helper()
	for _, step := range p.Steps {
		if step.Operand.Name != "driver" {
			continue
		}
		got := map[string]string{}
		for _, instance := range step.Instances {
			got[instance.Pool] = instance.Image
		}
		if diff := cmp.Diff(want, got); diff != "" || step.Action != plan.Apply || step.KeepUnrendered != hold {
			t.Errorf("%s %s, hold %v, -want +got:\n%s", step.Action, step.Message, step.KeepUnrendered, diff)
		}
	}
}

// A node is moved if no driver runs, or if a user removes its label.
func TestPrecompiledPoolLabels(t *testing.T) {
	const built, old = "ubuntu24.04-amd64", "ubuntu24.04-amd64-" + kernel
	tests := map[string]struct {
		on                    bool
		pool, poolKernel, now string
		hasDriver             bool
		want                  map[string]*string
	}{
		"a new node": {
			on:   true,
			now:  kernel,
			want: map[string]*string{poolLabel: set(old), kernelLabel: set(kernel)},
		},
		"settled":                      {on: true, pool: old, poolKernel: kernel, now: kernel, hasDriver: true},
		"another kernel with a driver": {on: true, pool: old, poolKernel: kernel, now: newer, hasDriver: true},
		"another kernel without driver": {
			on:         true,
			pool:       old,
			poolKernel: kernel,
			now:        newer,
			want:       map[string]*string{poolLabel: set(built + "-" + newer), kernelLabel: set(newer)},
		},
		"the pool's label is missing": {
			on:         true,
			poolKernel: kernel,
			now:        newer,
			hasDriver:  true,
			want:       map[string]*string{poolLabel: set(built + "-" + newer), kernelLabel: set(newer)},
		},
		"the kernel's label is missing": {
			on:        true,
			pool:      old,
			now:       kernel,
			hasDriver: true,
			want:      map[string]*string{kernelLabel: set(kernel)},
		},
		"enabled with a driver":  {on: true, pool: built, now: kernel, hasDriver: true},
		"disabled with a driver": {pool: old, poolKernel: kernel, now: kernel, hasDriver: true},
		"disabled without driver": {
			pool:       old,
			poolKernel: kernel,
			now:        kernel,
			want:       map[string]*string{poolLabel: set(built), kernelLabel: removed},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			current := map[string]string{}
			for key, value := range map[string]string{poolLabel: test.pool, kernelLabel: test.poolKernel} {
				if value != "" {
					current[key] = value
				}
			}
			p := decide(t, precompiledSpec(test.on))
			got := map[string]*string{}
			facts := inPool("a", test.now, test.pool, test.poolKernel)
			for key, value := range p.NodeLabels(facts, current, plan.ReadyPods{Driver: test.hasDriver, Injector: true}) {
				if key == poolLabel || key == kernelLabel {
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

func TestReleaseRemovesPoolLabels(t *testing.T) {
	got := plan.ReleasedLabels(catalogue(t), map[string]string{poolLabel: "p", kernelLabel: "k", coreOSLabel: "r"}, "")
	want := map[string]*string{poolLabel: removed, kernelLabel: removed, coreOSLabel: removed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
