package operand_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func onNode(name operand.Name, marker labels.Marker) operand.Requirement {
	return operand.Requirement{On: name, Scope: operand.Node, Marker: marker}
}

func inCluster(name operand.Name) operand.Requirement {
	return operand.Requirement{On: name, Scope: operand.Cluster}
}

func requires(requirements ...operand.Requirement) []operand.Requirement { return requirements }

func proves(proofs ...operand.Proof) []operand.Proof { return proofs }

func names(operands []operand.Operand) []operand.Name {
	var result []operand.Name
	for _, o := range operands {
		result = append(result, o.Name)
	}
	return result
}

// container is the workload of operands with pods on GPU nodes.
var container = []nodeinfo.Workload{nodeinfo.WorkloadContainer}

// stack is a catalogue with the structure of the real one and names of its own.
func stack() operand.Catalogue {
	return operand.Catalogue{
		{Name: "module"},
		{Name: "classes"},
		{
			Name: "runtime", IsInjector: true,
			Requires: requires(onNode("module", "m")),
			Proofs:   proves(operand.Proof{Marker: "m", Of: "module"}),
		},
		{
			Name: "plugin", NeedsInjection: true,
			Requires: requires(inCluster("classes"), onNode("runtime", "r")),
		},
		{
			Name: "validator", NeedsInjection: true,
			Requires: requires(onNode("module", "m"), onNode("runtime", "r"), onNode("plugin", "p")),
			Proofs: proves(
				operand.Proof{Marker: "m", Of: "module"},
				operand.Proof{Marker: "r", Of: "runtime"},
				operand.Proof{Marker: "p", Of: "plugin", OnlyWithOperand: true},
			),
		},
	}
}

func without(catalogue operand.Catalogue, name operand.Name) operand.Catalogue {
	var rest operand.Catalogue
	for _, o := range catalogue {
		if o.Name != name {
			rest = append(rest, o)
		}
	}
	return rest
}

func TestCatalogueOrder(t *testing.T) {
	tests := map[string]struct {
		catalogue operand.Catalogue
		want      []operand.Name
	}{
		"no operands": {},
		"a sorted catalogue keeps its order": {
			catalogue: stack(),
			want:      []operand.Name{"module", "classes", "runtime", "plugin", "validator"},
		},
		"an operand comes after what it requires, and the others keep their order": {
			catalogue: operand.Catalogue{
				{Name: "c", Requires: requires(inCluster("a"))}, {Name: "b"}, {Name: "a"}, {Name: "d"},
			},
			want: []operand.Name{"b", "a", "c", "d"},
		},
		"discovery comes before operands with pods on GPU nodes, and after what it requires": {
			catalogue: operand.Catalogue{
				{
					Name:      "driver",
					Workloads: container,
				}, {Name: "classes"}, {Name: "finder", Discovers: true, Requires: requires(inCluster("config"))}, {Name: "config"},
			},
			want: []operand.Name{"classes", "config", "finder", "driver"},
		},
		"a chain is reversed": {
			catalogue: operand.Catalogue{
				{Name: "c", Requires: requires(inCluster("b"))}, {Name: "b", Requires: requires(inCluster("a"))}, {Name: "a"},
			},
			want: []operand.Name{"a", "b", "c"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := operand.NewCatalogue(test.catalogue...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, names(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDefectiveCatalogues(t *testing.T) {
	tests := map[string]struct {
		catalogue operand.Catalogue
		want      []string
	}{
		"a required name that is not in the catalogue": {
			catalogue: operand.Catalogue{{Name: "a", Requires: requires(inCluster("unknown"))}},
			want:      []string{"operand a requires unknown, which is not in the catalogue"},
		},
		"a followed name that is not in the catalogue": {
			catalogue: operand.Catalogue{{Name: "a", Follows: "unknown"}},
			want:      []string{"operand a follows unknown, which is not in the catalogue"},
		},
		"a discovery that requires an operand on GPU nodes": {
			catalogue: operand.Catalogue{
				{Name: "driver", Workloads: container}, {Name: "finder", Discovers: true, Requires: requires(inCluster("driver"))},
			},
			want: []string{"cycle", "driver, finder"},
		},
		"a discovery that waits on the node for an operand on GPU nodes": {
			catalogue: operand.Catalogue{
				{Name: "module"},
				{Name: "finder", Discovers: true, Requires: requires(onNode("module", "m"))},
				{Name: "runtime", Workloads: container, Proofs: proves(operand.Proof{Marker: "m", Of: "module"})},
			},
			want: []string{"cycle on the node", "start of finder", "marker m", "start of runtime"},
		},
		"a name that is in the catalogue twice": {
			catalogue: operand.Catalogue{{Name: "a"}, {Name: "b"}, {Name: "a"}},
			want:      []string{"operand a is in the catalogue twice"},
		},
		"a cycle of requirements": {
			catalogue: operand.Catalogue{
				{Name: "free"},
				{Name: "a", Requires: requires(inCluster("b"))},
				{Name: "b", Requires: requires(inCluster("a"))},
			},
			want: []string{"cycle", "a, b"},
		},
		"an operand that requires itself": {
			catalogue: operand.Catalogue{{Name: "a", Requires: requires(inCluster("a"))}},
			want:      []string{"cycle", "a"},
		},
		"a marker that no operand writes": {
			catalogue: operand.Catalogue{{Name: "a"}, {Name: "b", Requires: requires(onNode("a", "m"))}},
			want:      []string{"operand b waits for marker m, which no operand proves"},
		},
		"a writer that waits for a marker which is written after its own": {
			catalogue: operand.Catalogue{
				{Name: "a"},
				{Name: "b", Requires: requires(onNode("a", "n")), Proofs: proves(operand.Proof{Marker: "m", Of: "a"})},
				{
					Name: "c", Requires: requires(inCluster("b"), onNode("a", "m")),
					Proofs: proves(operand.Proof{Marker: "n", Of: "a"}),
				},
			},
			want: []string{"cycle on the node", "marker m", "marker n"},
		},
		"a writer of the marker of an operand that waits for this marker": {
			catalogue: operand.Catalogue{
				{Name: "a"},
				{Name: "b", Requires: requires(onNode("a", "m"))},
				{Name: "c", Requires: requires(inCluster("b")), Proofs: proves(operand.Proof{Marker: "m", Of: "b"})},
			},
			want: []string{"cycle on the node", "marker m", "readiness of b"},
		},
		"a pod that waits for itself through the RuntimeClass": {
			catalogue: operand.Catalogue{
				{Name: "module"},
				{
					Name: "runtime", IsInjector: true, Requires: requires(onNode("module", "m")),
				},
				{
					Name: "validator", NeedsInjection: true, Requires: requires(inCluster("runtime")),
					Proofs: proves(operand.Proof{Marker: "m", Of: "module"}),
				},
			},
			want: []string{"cycle on the node", "readiness of runtime", "start of validator", "marker m"},
		},
		"an injector with injected pods": {
			catalogue: operand.Catalogue{{Name: "runtime", IsInjector: true, NeedsInjection: true}},
			want:      []string{"cycle on the node", "readiness of runtime", "start of runtime"},
		},
		"a cycle only without one operand, whose marker another one then writes": {
			catalogue: operand.Catalogue{
				{Name: "module"},
				{Name: "helper", Proofs: proves(operand.Proof{Marker: "m", Of: "module"})},
				{Name: "runtime", IsInjector: true, Requires: requires(onNode("module", "m"))},
				{
					Name: "validator", NeedsInjection: true, Requires: requires(inCluster("runtime")),
					Proofs: proves(operand.Proof{Marker: "m", Of: "module"}),
				},
			},
			want: []string{"without operand helper", "cycle on the node"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := operand.NewCatalogue(test.catalogue...)
			if err == nil {
				t.Fatalf("got %v and no error", names(got))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestAwaitedAndWrittenMarkers(t *testing.T) {
	type markers struct {
		Awaits []labels.Marker
		Writes map[labels.Marker]bool
	}
	none := map[labels.Marker]bool{}
	tests := map[string]struct {
		absent []operand.Name
		want   map[operand.Name]markers
	}{
		"with all operands, the first writer writes, and none waits for its own marker": {
			want: map[operand.Name]markers{
				"module":    {Writes: none},
				"classes":   {Writes: none},
				"runtime":   {Writes: map[labels.Marker]bool{"m": true}},
				"plugin":    {Awaits: []labels.Marker{"r"}, Writes: none},
				"validator": {Awaits: []labels.Marker{"m"}, Writes: map[labels.Marker]bool{"m": false, "r": true, "p": true}},
			},
		},
		"without the runtime, the validator writes the marker of the module": {
			absent: []operand.Name{"runtime"},
			want: map[operand.Name]markers{
				"module":    {Writes: none},
				"classes":   {Writes: none},
				"plugin":    {Awaits: []labels.Marker{"r"}, Writes: none},
				"validator": {Writes: map[labels.Marker]bool{"m": true, "r": true, "p": true}},
			},
		},
		"without the module, its marker is still written, as the host may provide it": {
			absent: []operand.Name{"module"},
			want: map[operand.Name]markers{
				"classes":   {Writes: none},
				"runtime":   {Writes: map[labels.Marker]bool{"m": true}},
				"plugin":    {Awaits: []labels.Marker{"r"}, Writes: none},
				"validator": {Awaits: []labels.Marker{"m"}, Writes: map[labels.Marker]bool{"m": false, "r": true, "p": true}},
			},
		},
		"without the plugin, its proof is dropped, and no operand waits for it": {
			absent: []operand.Name{"plugin"},
			want: map[operand.Name]markers{
				"module":    {Writes: none},
				"classes":   {Writes: none},
				"runtime":   {Writes: map[labels.Marker]bool{"m": true}},
				"validator": {Awaits: []labels.Marker{"m"}, Writes: map[labels.Marker]bool{"m": false, "r": true, "p": false}},
			},
		},
		"without the validator, no operand waits for markers that only it writes": {
			absent: []operand.Name{"validator"},
			want: map[operand.Name]markers{
				"module":  {Writes: none},
				"classes": {Writes: none},
				"runtime": {Writes: map[labels.Marker]bool{"m": true}},
				"plugin":  {Writes: none},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			installed := stack()
			for _, absent := range test.absent {
				installed = without(installed, absent)
			}
			got := map[operand.Name]markers{}
			for _, o := range installed {
				got[o.Name] = markers{installed.AwaitedMarkers(o), installed.WritesMarkers(o)}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The first operand in graph order that can prove a marker does.
func TestProver(t *testing.T) {
	for want, catalogue := range map[operand.Name]operand.Catalogue{
		"runtime":   stack(),
		"validator": without(stack(), "runtime"),
		"":          without(without(stack(), "runtime"), "validator"),
	} {
		got, exists := catalogue.Prover("m")
		if got != want || exists != (want != "") {
			t.Errorf("got %q, %v, want %q", got, exists, want)
		}
	}
}
