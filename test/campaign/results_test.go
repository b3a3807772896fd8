package campaign

import (
	"path/filepath"

	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

// verdict is the result of a point.
type verdict string

const (
	passed verdict = "passed"
	failed verdict = "failed"
	// missed: the fault had no target in this run, which has shown nothing.
	missed verdict = "missed"
)

// kept is the stored result of a point.
type kept struct {
	Point   string  `json:"point"`
	Verdict verdict `json:"verdict"`
	// Recovery is in seconds.
	Recovery float64 `json:"recovery,omitempty"`
	Detail   string  `json:"detail,omitempty"`
	// Commit is that of the source, empty if unknown.
	Commit string `json:"commit,omitempty"`
}

// results are those of one operator and one campaign, by point.
type results struct {
	*resultfile.File[string, kept]
}

// bugPrefix is the prefix of the names of seeded bugs among the points.
const bugPrefix = "bug/"

// openResults reads the results for an operator, and those of the flag -campaign.from.
func openResults(binary string) (results, error) {
	file, err := resultfile.Open(filepath.Join(repo, ".cache", "campaign"), func(k kept) string { return k.Point }, binary)
	if err != nil || *flagFrom == "" {
		return results{file}, err
	}
	return results{file}, file.Read(*flagFrom)
}

// hasPassed reports whether the point does not need to run again.
func (r results) hasPassed(point string) bool {
	return r.Of(point).Verdict == passed
}

// add stores a result.
func (r results) add(k kept) error {
	k.Commit = commit()
	return r.Add(k)
}
