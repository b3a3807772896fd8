package previews

import "github.com/clusterpolicy/gpu-operator/test/resultfile"

// result is that of a case.
type result struct {
	Seed   uint64 `json:"seed"`
	Passed bool   `json:"passed"`
	// Refused: the API server refuses the policy or an NVIDIADriver, as was printed.
	Refused int `json:"refused,omitempty"`
	// Excusable: it was printed that an object may differ. Named are the differences that were named so.
	Excusable bool `json:"excusable,omitempty"`
	Named     int  `json:"named,omitempty"`
	// Objects that were compared, Changes that were planned, and how many of them come as nodes are moved.
	Objects int `json:"objects"`
	Changes int `json:"changes"`
	Later   int `json:"later,omitempty"`
	// Rendered are the objects that render printed of the cluster.
	Rendered int `json:"rendered,omitempty"`
	// Drivers are the pods of drivers that ran before the second edit.
	Drivers int `json:"drivers,omitempty"`
}

// results are those of the same programs, by seed.
type results struct {
	*resultfile.File[uint64, result]
}

// openResults reads the results for programs.
func openResults(dir string, programs ...string) (results, error) {
	file, err := resultfile.Open(dir, func(r result) uint64 { return r.Seed }, programs...)
	return results{file}, err
}
