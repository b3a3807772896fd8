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
	// Operand that the rows are about, unless they name another.
	Operand operand.Name `json:"operand"`
	// DaemonSet starts the names of its DaemonSets. Empty where nobody relies on the name.
	DaemonSet string `json:"daemonSet"`
	// Scenarios are the specs and nodes that rows speak of, by name.
	Scenarios map[string]scenario `json:"scenarios"`
	Rows      []row               `json:"rows"`
}

// scenario is what a rendering depends on.
type scenario struct {
	Spec v1.ClusterPolicySpec `json:"spec"`
	// Nodes of the cluster: one ordinary GPU node where the key is missing.
	Nodes []node `json:"nodes"`
	// Optional are the kinds that the cluster has besides those of Kubernetes.
	Optional []operand.OptionalKind `json:"optional"`
	// DriverToolkit has the images of OpenShift's driver toolkit, by release of Red Hat CoreOS.
	DriverToolkit map[string]string `json:"driverToolkit"`
}

// node is a GPU node, as labels describe it.
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

// row is one fact. It holds exactly one expectation.
type row struct {
	ID       string       `json:"id"`
	Operand  operand.Name `json:"operand"`
	Scenario string       `json:"scenario"`
	// What is looked at; the keys of extractors.
	What string `json:"what"`
	// Container, Name and Key tell where. The container * is the first one of the pod.
	Container string `json:"container"`
	Name      string `json:"name"`
	Key       string `json:"key"`

	// Expect is what must be there. Of an object the named fields count, and one that is null must be
	// absent, empty or false; lists have the same length.
	Expect any `json:"expect"`
	// Exactly is the whole value.
	Exactly any `json:"exactly"`
	// OneOf are values, of which null is none.
	OneOf []any `json:"oneOf"`
	// Contains and Lacks are elements of a list or parts of a text.
	Contains []string `json:"contains"`
	Lacks    []string `json:"lacks"`
	// Count of the elements of a list.
	Count *int `json:"count"`
	// Absent and Present say whether there is anything.
	Absent  bool `json:"absent"`
	Present bool `json:"present"`
	// SameAs and DiffersFrom name another place with an equal or another value.
	SameAs      *elsewhere `json:"sameAs"`
	DiffersFrom *elsewhere `json:"differsFrom"`
	// OrAbsent accepts that there is nothing.
	OrAbsent bool `json:"orAbsent"`

	// Source of the fact, and why it matters where that is not plain.
	Source string `json:"source"`
	Why    string `json:"why"`
}

// elsewhere is where a row compares with.
type elsewhere struct {
	Scenario  string `json:"scenario"`
	Container string `json:"container"`
}

// expectations counts those of the row.
func (r row) expectations() int {
	count := 0
	for _, given := range []bool{
		r.Expect != nil, r.Exactly != nil, r.OneOf != nil, r.Contains != nil, r.Lacks != nil, r.Count != nil,
		r.Absent, r.Present, r.SameAs != nil, r.DiffersFrom != nil,
	} {
		if given {
			count++
		}
	}
	return count
}

// defect tells what is wrong with the row itself.
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

// load reads a table strictly: an unknown key is an error, as is one of the spec that the API lacks.
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

// defects of the table itself: a row that can judge nothing, an id that is there twice, a scenario that
// nobody uses.
func (tb table) defects() []string {
	var defects []string
	ids, used := map[string]bool{}, map[string]bool{}
	for _, row := range tb.Rows {
		if defect := row.defect(tb.Scenarios); defect != "" {
			defects = append(defects, fmt.Sprintf("row %q: %s", row.ID, defect))
		}
		if ids[row.ID] {
			defects = append(defects, fmt.Sprintf("row %q is there twice", row.ID))
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

// tables lists the files by the names of their tables.
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
