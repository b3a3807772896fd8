package render_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The arguments of a sidecar are passed to its program, which gpu-node starts.
func TestArgumentsOfSidecars(t *testing.T) {
	for name, test := range map[string]struct {
		args, want []string
	}{
		"by default": {nil, []string{"install"}},
		"empty":      {[]string{}, []string{"install"}},
		"replaced":   {[]string{"install", `--note="a: b"`}, []string{"install", `--note="a: b"`}},
	} {
		t.Run(name, func(t *testing.T) {
			ds := situation{spec: v1.ClusterPolicySpec{
				GDS: &v1.GDSSpec{
					Enabled: new(true),
					Args:    test.args,
				}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true), Args: test.args},
			}}.daemonSet(t, "driver")
			for sidecar, program := range map[string]string{
				"nvidia-fs-ctr": "nvidia-gds-driver", "nvidia-gdrcopy-ctr": "nvidia-gdrcopy-driver",
			} {
				started := container(t, ds, sidecar)
				argv := slices.Concat(started.Command, started.Args)
				want := append([]string{"--driver-container", "--", program}, test.want...)
				if diff := cmp.Diff(want, argv[2:]); diff != "" {
					t.Errorf("%s: -want +got:\n%s", sidecar, diff)
				}
			}
		})
	}
}
