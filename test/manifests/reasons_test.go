package manifests

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// reason is an entry of reasons.yaml, which documents its fields.
type reason struct {
	Checks []string `json:"checks"`
	Of     []string `json:"of"`
	With   string   `json:"with"`
	Why    string   `json:"why"`
}

// readReasons reads a table, and fails if an entry is incomplete.
func readReasons(path string) ([]reason, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var reasons []reason
	if err := yaml.UnmarshalStrict(data, &reasons); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	for i, r := range reasons {
		if len(r.Checks) == 0 || len(r.Of) == 0 || r.Why == "" {
			return nil, fmt.Errorf("reading %s: entry %d has no checks, of or why", path, i+1)
		}
	}
	return reasons, nil
}

// matches reports whether a pattern matches the finding, where * is any text.
func matches(pattern string, f finding) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(f.target())
}

// appliesTo reports whether the entry has a pattern for the finding.
func (r reason) appliesTo(v *verdict, f finding) bool {
	return slices.Contains(r.Checks, f.check) && (r.With == "" || v.found[finding{r.With, f.object, f.part}])
}

// compare reports the findings that do not have exactly one reason, and the patterns without a finding.
func compare(v *verdict, reasons []reason) (unexcused, needless []string) {
	for f := range v.found {
		var why []string
		for _, r := range reasons {
			if r.appliesTo(v, f) && slices.ContainsFunc(r.Of, func(p string) bool { return matches(p, f) }) {
				why = append(why, r.Why)
			}
		}
		if len(why) != 1 {
			unexcused = append(unexcused, fmt.Sprintf("%s of %s has %d reasons: fix the manifest, or fix reasons.yaml %q",
				f.check, f.target(), len(why), why))
		}
	}
	for _, r := range reasons {
		for _, check := range r.Checks {
			for _, pattern := range r.Of {
				if !slices.ContainsFunc(v.of(check), func(f finding) bool { return r.appliesTo(v, f) && matches(pattern, f) }) {
					needless = append(needless,
						fmt.Sprintf("%s has no finding that matches %q: remove it from reasons.yaml", check, pattern))
				}
			}
		}
	}
	slices.Sort(unexcused)
	return unexcused, needless
}
