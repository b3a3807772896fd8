package status

import (
	"cmp"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/safeversion"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// outdatedVersions returns the versions with known vulnerabilities: of the operands that are installed, and of the
// drivers that nodes report, whoever has installed them. They are sorted by component, then version.
func outdatedVersions(in Input, nodes []node) []conditions.OutdatedVersion {
	checked := versionChecks{}
	for i := range in.Plan.Steps {
		step := &in.Plan.Steps[i]
		for j := range step.Instances {
			if version := checked.of(string(step.Operand.Name), step.Instances[j].Version); version != nil {
				version.InSpec = true
			}
		}
	}
	for i := range nodes {
		facts := &nodes[i].Facts
		if version := checked.of(safeversion.Driver, labels.DriverOf(facts.Labels)); version != nil {
			version.Nodes = append(version.Nodes, facts.Name)
		}
	}
	var found []conditions.OutdatedVersion
	for _, version := range checked {
		if version != nil {
			slices.Sort(version.Nodes)
			found = append(found, *version)
		}
	}
	slices.SortFunc(found, func(a, b conditions.OutdatedVersion) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Version, b.Version))
	})
	return found
}

// component is a version of a component.
type component struct{ name, version string }

// versionChecks are the versions that were checked, nil for one without known vulnerabilities: thousands of nodes run
// few of them.
type versionChecks map[component]*conditions.OutdatedVersion

// of returns what is found of a version, nil if it has no known vulnerability.
func (c versionChecks) of(name, tag string) *conditions.OutdatedVersion {
	version := tag
	if name == safeversion.Driver {
		// The operating system of the nodes is no part of the version of a driver.
		version, _, _ = strings.Cut(tag, "-")
	}
	key := component{name, version}
	if known, isKnown := c[key]; isKnown {
		return known
	}
	c[key] = nil
	if outdated, isOutdated := safeversion.Check(name, version); isOutdated {
		c[key] = &conditions.OutdatedVersion{Outdated: outdated}
	}
	return c[key]
}
