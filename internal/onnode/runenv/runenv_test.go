package runenv

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

func TestEnviron(t *testing.T) {
	tests := map[string]struct {
		base        []string
		assignments []marker.Assignment
		want        []string
	}{
		"adds the marker's assignments": {
			base:        []string{"PATH=/bin"},
			assignments: []marker.Assignment{{Key: "IS_HOST_DRIVER", Value: "true"}, {Key: "NVIDIA_DRIVER_ROOT", Value: "/a b"}},
			want:        []string{"PATH=/bin", "IS_HOST_DRIVER=true", "NVIDIA_DRIVER_ROOT=/a b"},
		},
		"lets the marker override the container's environment": {
			base:        []string{"NVIDIA_DRIVER_ROOT=/old", "NVIDIA_DRIVER_ROOT_X=1"},
			assignments: []marker.Assignment{{Key: "NVIDIA_DRIVER_ROOT", Value: "/"}},
			want:        []string{"NVIDIA_DRIVER_ROOT_X=1", "NVIDIA_DRIVER_ROOT=/"},
		},
		"leaves out what validates the marker": {
			base:        []string{"A=1"},
			assignments: []marker.Assignment{{Key: "BOOT_ID", Value: "x"}, {Key: "DRIVER_INSTANCE", Value: "y"}},
			want:        []string{"A=1"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Environ(tc.base, tc.assignments)).To(Equal(tc.want))
		})
	}
}

func TestReplaceReportsAMissingCommand(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Replace([]string{"no-such-command"}, nil)).To(MatchError(ContainSubstring("find the command to run")))
}
