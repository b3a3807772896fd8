package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// table is one file.
type table struct {
	// Operand of the rows that do not name another.
	Operand operand.Name `json:"operand"`
	// DaemonSet is the prefix of the names of its DaemonSets. Empty if no component relies on the name.
	DaemonSet string `json:"daemonSet"`
	// Scenarios are the specs and nodes that rows refer to, by name.
	Scenarios map[string]scenario `json:"scenarios"`
	Rows      []row               `json:"rows"`
}

// scenario is the input of a rendering.
type scenario struct {
	Spec v1.ClusterPolicySpec `json:"spec"`
	// Nodes of the cluster; the default is one ordinary GPU node.
	Nodes []node `json:"nodes"`
	// Optional are the kinds that the cluster serves besides those of Kubernetes.
	Optional []operand.OptionalKind `json:"optional"`
	// ConfigMaps are the keys of the user's ConfigMaps, by name.
	ConfigMaps map[string][]string `json:"configMaps"`
	// DriverToolkit has the images of OpenShift's driver toolkit, by release of Red Hat CoreOS.
	DriverToolkit map[string]string `json:"driverToolkit"`
	// OpenShift is what the configuration of OpenShift has.
	OpenShift operand.OpenShiftCluster `json:"openShift"`
}

// node is a GPU node, as described by labels.
type node struct {
	OS       string  `json:"os"`
	Version  string  `json:"version"`
	Arch     string  `json:"arch"`
	Kernel   string  `json:"kernel"`
	OSTree   string  `json:"ostree"`
	MIG      *string `json:"mig"`
	MPS      *string `json:"mps"`
	Product  string  `json:"product"`
	Runtime  string  `json:"runtime"`
	VGPUHost bool    `json:"vgpuHost"`
}

// row is one fact, with exactly one expectation.
type row struct {
	ID       string       `json:"id"`
	Operand  operand.Name `json:"operand"`
	Scenario string       `json:"scenario"`
	// What is a key of extractors.
	What string `json:"what"`
	// Container, Name and Key are the location. The container * is the first one of the pod.
	Container string `json:"container"`
	Name      string `json:"name"`
	Key       string `json:"key"`

	// Expect is the expected value. In an object only the named fields are compared, and a null field must be absent,
	// empty or false; lists must have the same length.
	Expect any `json:"expect"`
	// Exactly is the complete value.
	Exactly any `json:"exactly"`
	// OneOf are alternative values; null means absent.
	OneOf []any `json:"oneOf"`
	// Contains and Excludes are elements of a list or substrings.
	Contains []string `json:"contains"`
	Excludes []string `json:"excludes"`
	// Count of the elements of a list.
	Count *int `json:"count"`
	// Absent and Present expect no value or any value.
	Absent  bool `json:"absent"`
	Present bool `json:"present"`
	// SameAs and DiffersFrom name another place with an equal or a different value.
	SameAs      *elsewhere `json:"sameAs"`
	DiffersFrom *elsewhere `json:"differsFrom"`
	// OrAbsent also accepts an absent value.
	OrAbsent bool `json:"orAbsent"`

	// Source of the fact, and why it matters if that is not obvious.
	Source string `json:"source"`
	Why    string `json:"why"`
}

// elsewhere is the place that a row compares with.
type elsewhere struct {
	Scenario  string `json:"scenario"`
	Container string `json:"container"`
}

// expectations counts those of the row.
func (r row) expectations() int {
	count := 0
	for _, given := range []bool{
		r.Expect != nil, r.Exactly != nil, r.OneOf != nil, r.Contains != nil, r.Excludes != nil, r.Count != nil,
		r.Absent, r.Present, r.SameAs != nil, r.DiffersFrom != nil,
	} {
		if given {
			count++
		}
	}
	return count
}

// defect returns what is wrong with the row itself; empty if nothing is.
func (r row) defect(scenarios map[string]scenario) string {
	if r.ID == "" || r.Source == "" {
		return "it needs an id and a source"
	}
	if r.Operand == "" {
		return "it names no operand, nor does its table"
	}
	if _, known := extractors[r.What]; !known {
		return fmt.Sprintf("what %q is unknown", r.What)
	}
	if count := r.expectations(); count != 1 {
		return fmt.Sprintf("it has %d expectations, want one", count)
	}
	used := []string{r.Scenario}
	for _, other := range []*elsewhere{r.SameAs, r.DiffersFrom} {
		if other != nil && other.Scenario != "" {
			used = append(used, other.Scenario)
		}
	}
	for _, name := range used {
		if _, known := scenarios[name]; !known {
			return fmt.Sprintf("scenario %q is not in the table", name)
		}
	}
	return ""
}

// load reads a table strictly: an unknown key is an error, also in a spec.
func load(t *testing.T, file string) table {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var loaded table
	if err := yaml.UnmarshalStrict(data, &loaded); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i := range loaded.Rows {
		if loaded.Rows[i].Operand == "" {
			loaded.Rows[i].Operand = loaded.Operand
		}
	}
	return loaded
}

// defects returns the defects of the table itself: a row that checks nothing, a duplicate id, an unused scenario.
func (tb table) defects() []string {
	var defects []string
	ids, used := map[string]bool{}, map[string]bool{}
	for _, row := range tb.Rows {
		if defect := row.defect(tb.Scenarios); defect != "" {
			defects = append(defects, fmt.Sprintf("row %q: %s", row.ID, defect))
		}
		if ids[row.ID] {
			defects = append(defects, fmt.Sprintf("row %q is duplicated", row.ID))
		}
		ids[row.ID], used[row.Scenario] = true, true
		for _, other := range []*elsewhere{row.SameAs, row.DiffersFrom} {
			if other != nil {
				used[other.Scenario] = true
			}
		}
	}
	for name := range tb.Scenarios {
		if !used[name] {
			defects = append(defects, fmt.Sprintf("scenario %q is used by no row", name))
		}
	}
	return defects
}

// tables returns the files by the names of their tables.
func tables(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	byName := map[string]string{}
	for _, file := range files {
		byName[strings.TrimSuffix(file, ".yaml")] = file
	}
	return byName
}
