package safeversion_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		component, version string
		// minimum is empty for a version without known vulnerabilities, or of which nothing is known.
		minimum, why string
	}{
		{"driver", "580.95.05-ubuntu24.04", "580.178.04",
			"before 580.178.04, which fixes the vulnerabilities of NVIDIA's security bulletin 5861 (September 2026)"},
		{"driver", "580.178.03", "580.178.04", "5861"},
		{"driver", "580.178.04", "", ""},
		{"driver", "580.178", "", ""}, // a label for the revision is missing
		{"driver", "580.200", "", ""},
		{"driver", "580.65", "580.178.04", "5861"},
		{"driver", "535.288.01", "535.309.01", "5821"},
		{"driver", "590.44.01-rhel9.6", "590.48.01", "5747"},
		{"driver", "595.91.07-ubuntu24.04", "", ""},
		{"driver", "620.10.01", "", ""}, // no bulletin names the branch
		{"driver", "550.90.07", "", ""},
		{"driver", "595-6.8.0-60-generic-ubuntu24.04", "", ""}, // precompiled
		{"driver", "sha256:0123", "", ""},
		{"driver", "", "", ""},
		{"driver", "580.x.05", "", ""},
		{"container-toolkit", "v1.17.7-ubuntu20.04", "1.19.1",
			"before 1.19.1, which fixes CVE-2026-24260, CVE-2025-23266, CVE-2025-23267"},
		{"container-toolkit", "1.16.1", "1.19.1",
			"before 1.19.1, which fixes CVE-2026-24260, CVE-2025-23266, CVE-2025-23267, CVE-2025-23359 and 6 more"},
		{"container-toolkit", "v1.20.0", "", ""},
		{"container-toolkit", "v1.17", "", ""},
		{"container-toolkit", "latest", "", ""},
		{"device-plugin", "v0.17.2", "0.17.3", "CVE-2025-23266"},
		{"mig-manager", "v0.12.1", "0.12.2", "CVE-2025-23266"},
		{"dcgm-exporter", "4.5.2-4.8.2-distroless", "4.8.3", "CVE-2026-47483"},
		{"dcgm-exporter", "4.6.0-4.8.3-distroless", "", ""},
		{"dcgm", "4.5.2-1-ubuntu24.04", "4.5.3", "CVE-2026-47483"},
		{"gpu-feature-discovery", "v0.1.0", "", ""},
	} {
		t.Run(c.component+" "+c.version, func(t *testing.T) {
			g := NewWithT(t)
			found, isOutdated := safeversion.Check(c.component, c.version)
			g.Expect(isOutdated).To(Equal(c.minimum != ""))
			g.Expect(found.Component).To(Equal(c.component))
			g.Expect(found.Version).To(Equal(c.version))
			if !isOutdated {
				return
			}
			g.Expect(found.Minimum()).To(Equal(c.minimum))
			g.Expect(found.Why()).To(ContainSubstring(c.why))
			end := " or later, or remove it"
			if c.component == safeversion.Driver {
				end = " or later, or update the host where the driver is the host's"
			}
			g.Expect(found.Remedy()).To(And(HavePrefix("set spec."), HaveSuffix(c.minimum+end)))
		})
	}
}

// A text names at most four vulnerabilities.
func TestWhy(t *testing.T) {
	of := func(vulnerabilities ...string) string {
		return safeversion.Outdated{Missing: []safeversion.Fix{{Version: "1.2.3", Vulnerabilities: vulnerabilities}}}.Why()
	}
	g := NewWithT(t)
	g.Expect(of("a", "b", "c", "d")).To(Equal("before 1.2.3, which fixes a, b, c, d"))
	g.Expect(of("a", "b", "c", "d", "e", "f")).To(Equal("before 1.2.3, which fixes a, b, c, d and 2 more"))
}

// Each row is found by a version before it and not by its own, and the rows of a branch are in order.
func TestTheTableIsInOrder(t *testing.T) {
	g := NewWithT(t)
	fixes := safeversion.Fixes()
	for i, fix := range fixes {
		found, isOutdated := safeversion.Check(fix.Component, fix.Version)
		later := slices.ContainsFunc(fixes[i+1:], func(other safeversion.Fix) bool {
			return other.Component == fix.Component && other.Branch == fix.Branch
		})
		g.Expect(isOutdated).To(Equal(later), "%s %s", fix.Component, fix.Version)
		g.Expect(found.Missing).NotTo(ContainElement(fix))
		g.Expect(fix.Bulletin).To(MatchRegexp(`^\d{4}$`))
		if fix.Component != safeversion.Driver {
			g.Expect(fix.Vulnerabilities).To(HaveEach(MatchRegexp(`^CVE-20\d\d-\d+$`)))
		}
	}
}
