package cleanup_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
)

func TestTextHasALineForEachReason(t *testing.T) {
	g := NewWithT(t)
	report := cleanup.Report{
		Left: []cleanup.Left{
			{Path: "/a", By: "the driver", Why: "it is used"}, {Path: "/b", By: "the driver", Why: "it is mounted", Busy: true},
			{Path: "/c", By: "the driver", Why: "it is used"}, {Path: "/d", By: "the toolkit", Why: "it is used"},
		},
		Modules: []cleanup.Module{{Name: "nvidia", References: "3"}},
	}
	const (
		used    = "/a and 1 more, made by the driver: it is used\n"
		mounted = "/b, made by the driver: it is mounted\n"
		toolkit = "/d, made by the toolkit: it is used\n"
		modules = "kernel modules that stay loaded: nvidia (references: 3); " +
			"unless they belong to the host's own driver, unload them or restart the node"
	)
	g.Expect(report.Text(1000)).To(Equal(used + mounted + toolkit + modules))
	g.Expect(report.Text(len(used + mounted + toolkit + modules))).To(Equal(used + mounted + toolkit + modules))
	g.Expect(report.Text(len(used+mounted+toolkit+modules) - 1)).
		To(Equal(used + mounted + toolkit + "and 1 more, see the log"))
	g.Expect(report.Text(100)).To(Equal(used + "and 3 more, see the log"))
	g.Expect(report.Text(30)).To(Equal("and 4 more, see the log"))
	g.Expect(report.Busy()).To(Equal([]cleanup.Left{
		{Path: "/b", By: "the driver", Why: "it is mounted", Busy: true},
	}))
	g.Expect(cleanup.Report{}.Text(1000)).To(BeEmpty())
}
