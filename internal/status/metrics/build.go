package metrics

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// buildInfo returns the constant series of the running program. Its commit is known only if the program was built in a
// checkout with -buildvcs.
func buildInfo(info *debug.BuildInfo, known bool) prometheus.Metric {
	revision := ""
	if known {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = setting.Value
			}
		}
	}
	description := prometheus.NewDesc(prefix+"build_info", "1, with what the operator was built from as labels.",
		[]string{"version", "revision", "goversion"}, nil)
	return prometheus.MustNewConstMetric(description, prometheus.GaugeValue, 1,
		version.Version, cmp.Or(revision, "unknown"), runtime.Version())
}
