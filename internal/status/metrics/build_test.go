package metrics

import (
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// built is a collector of one constant series.
type built struct{ prometheus.Metric }

func (b built) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- b.Desc() }

func (b built) Collect(samples chan<- prometheus.Metric) { samples <- b.Metric }

func TestRevisionOfTheBuild(t *testing.T) {
	of := func(key string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: key, Value: "c0ffee"}}}
	}
	for name, test := range map[string]struct {
		info  *debug.BuildInfo
		known bool
		want  string
	}{
		"with a commit":    {of("vcs.revision"), true, "c0ffee"},
		"without a commit": {of("vcs.time"), true, "unknown"},
		"without any":      {nil, false, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, err := testutil.CollectAndFormat(built{buildInfo(test.info, test.known)}, expfmt.TypeTextPlain,
				prefix+"build_info")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(text)).To(ContainSubstring(`revision="` + test.want + `"`))
		})
	}
}
