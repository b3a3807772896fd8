package runenv

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

func TestParseRules(t *testing.T) {
	tests := map[string]struct {
		text string
		want []Rule
	}{
		"a rule":                 {text: "GDRCOPY_ENABLED=gdrdrv", want: []Rule{{Name: "GDRCOPY_ENABLED", Source: "gdrdrv"}}},
		"no source":              {text: "GDRCOPY_ENABLED"},
		"an empty source":        {text: "GDRCOPY_ENABLED="},
		"no name":                {text: "=gdrdrv"},
		"a source with a path":   {text: "GDRCOPY_ENABLED=../gdrdrv"},
		"a name that is none":    {text: "GDR-COPY=gdrdrv"},
		"a rule with two values": {text: "A=b=c"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := ParseRules([]string{tc.text})
			if tc.want == nil {
				g.Expect(err).To(MatchError(ContainSubstring("does not have the form VARIABLE=SOURCE")))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestRulesSetUnsetVariables(t *testing.T) {
	rules := []Rule{{Name: "GDS_ENABLED", Source: "nvidia_fs"}, {Name: "MOFED_ENABLED", Source: "nvidia_fs"}}
	tests := map[string]struct {
		env    []string
		loaded bool
		want   []string
	}{
		"nothing where the module is not loaded": {env: []string{"A=1"}, want: []string{"A=1"}},
		"each variable of a loaded module": {
			env: []string{"A=1"}, loaded: true, want: []string{"A=1", "GDS_ENABLED=true", "MOFED_ENABLED=true"}},
		"not a variable that the user has set": {
			env: []string{"GDS_ENABLED=false"}, loaded: true, want: []string{"GDS_ENABLED=false", "MOFED_ENABLED=true"}},
		"a variable that the user has left empty": {
			env: []string{"GDS_ENABLED=", "A=1"}, loaded: true, want: []string{"A=1", "GDS_ENABLED=true", "MOFED_ENABLED=true"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			loaded := func(module string) bool { return tc.loaded && module == "nvidia_fs" }
			NewWithT(t).Expect(FromModules(tc.env, loaded, rules)).To(Equal(tc.want))
		})
	}
}

func TestRulesCopyFromTheMarker(t *testing.T) {
	g := NewWithT(t)
	found := []marker.Assignment{{Key: "IS_HOST_DRIVER", Value: "false"}}
	rules := []Rule{{Name: "WITH_SHUTDOWN_HOST_GPU_CLIENTS", Source: "IS_HOST_DRIVER"}}
	g.Expect(FromMarker([]string{"A=1"}, found, rules)).To(Equal([]string{"A=1", "WITH_SHUTDOWN_HOST_GPU_CLIENTS=false"}))
	g.Expect(FromMarker([]string{"WITH_SHUTDOWN_HOST_GPU_CLIENTS=true"}, found, rules)).
		To(Equal([]string{"WITH_SHUTDOWN_HOST_GPU_CLIENTS=true"}))
	_, err := FromMarker(nil, nil, rules)
	g.Expect(err).To(MatchError("the marker has no line IS_HOST_DRIVER=, from which " +
		"WITH_SHUTDOWN_HOST_GPU_CLIENTS is set; name one that has it by --marker"))
}
