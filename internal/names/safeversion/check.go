package safeversion

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxVulnerabilities is how many a text names.
const maxVulnerabilities = 4

// Outdated is a version of a component that has known vulnerabilities.
type Outdated struct {
	Component, Version string
	// Missing are the fixes that the version does not have, the newest first; at least one.
	Missing []Fix
}

// Check returns what a version lacks; false if it lacks nothing, or if that is unknown: the component or the branch is
// not in the table, or the version is no complete one, such as a digest, the branch of a precompiled driver, or the
// beginning of the version of a fix, as of a node without the label of the driver's revision. The version is
// that of a tag of an image, with or without "v" and what follows it, or as the driver reports it.
func Check(component, version string) (Outdated, bool) {
	found := Outdated{Component: component, Version: version}
	numbers := parse(component, version)
	if numbers == nil {
		return found, false
	}
	for _, fix := range Fixes() {
		if fix.Component == component && (fix.Branch == 0 || fix.Branch == numbers[0]) &&
			isBefore(numbers, parse(component, fix.Version)) {
			found.Missing = append(found.Missing, fix)
		}
	}
	slices.Reverse(found.Missing)
	return found, len(found.Missing) > 0
}

// isBefore reports whether a version is older than that of a fix. The beginning of it may be the same one.
func isBefore(version, fix []int) bool {
	return slices.Compare(version, fix) < 0 && !slices.Equal(version, fix[:min(len(version), len(fix))])
}

// parse returns the numbers of a version; nil if it is no complete one. Tags of the exporter name the version of the
// engine before its own, as in 4.6.0-4.8.3-distroless.
func parse(component, version string) []int {
	parts := strings.Split(version, "-")
	if component == DCGMExporter && len(parts) > 1 && strings.Contains(parts[1], ".") {
		parts = parts[1:]
	}
	var numbers []int
	for text := range strings.SplitSeq(strings.TrimPrefix(parts[0], "v"), ".") {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil
		}
		numbers = append(numbers, number)
	}
	// A driver has two numbers where it has no revision. Nothing is known of the branch 595 or of version 1.17 alone.
	if len(numbers) < 2 || component != Driver && len(numbers) < 3 {
		return nil
	}
	return numbers
}

// Minimum is the oldest version without the known vulnerabilities.
func (o Outdated) Minimum() string { return o.Missing[0].Version }

// Why is what a newer version fixes, such as "before 1.19.1, which fixes CVE-2026-24260".
func (o Outdated) Why() string {
	var named []string
	for _, fix := range o.Missing {
		named = append(named, fix.Vulnerabilities...)
	}
	newest := o.Missing[0]
	if len(named) == 0 {
		return fmt.Sprintf("before %s, which fixes the vulnerabilities of NVIDIA's security bulletin %s (%s)",
			newest.Version, newest.Bulletin, newest.Date)
	}
	return fmt.Sprintf("before %s, which fixes %s", newest.Version, text.Named(named, maxVulnerabilities))
}

// Remedy is what to change.
func (o Outdated) Remedy() string {
	field := fields[o.Component]
	if o.Component == Driver {
		return fmt.Sprintf("set %s to %s or later, or update the host where the driver is the host's", field, o.Minimum())
	}
	return fmt.Sprintf("set %s to %s or later, or remove it", field, o.Minimum())
}
