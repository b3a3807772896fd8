package operands_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/assets"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
)

func catalogue(t *testing.T) operand.Catalogue {
	t.Helper()
	all, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tabled returns the operands that the tables of this package list.
func tabled(t *testing.T) operand.Catalogue {
	t.Helper()
	all, err := scenarios.Tabled()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return all
}

func names(all operand.Catalogue) []operand.Name {
	var result []operand.Name
	for _, o := range all {
		result = append(result, o.Name)
	}
	return result
}

func TestCatalogueIsSorted(t *testing.T) {
	placed := map[operand.Name]bool{}
	for _, o := range catalogue(t) {
		for _, r := range o.Requires {
			if !placed[r.On] {
				t.Errorf("%s comes before %s, which it requires", o.Name, r.On)
			}
		}
		placed[o.Name] = true
	}
}

// Exactly the operands with a DaemonSet have a placement, in a block of the spec.
func TestDaemonSetsHavePlacements(t *testing.T) {
	g := NewWithT(t)
	for _, o := range catalogue(t) {
		text, err := fs.ReadFile(assets.FS, string(o.Name)+"/0500_daemonset.yaml")
		if has := err == nil && len(text) > 0; has != (o.Placement != nil) {
			t.Errorf("%s has a DaemonSet: %v, and a placement: %v", o.Name, has, o.Placement != nil)
		}
		if o.Placement == nil {
			continue
		}
		field := o.Placement(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).Field
		spec := v1.ClusterPolicySpec{}
		path := strings.Split(strings.TrimPrefix(field, "spec."), ".")
		block := fmt.Sprintf(`{%s: {priorityClassName: its-own}%s`, strings.Join(path, ": {"), strings.Repeat("}", len(path)))
		g.Expect(yaml.UnmarshalStrict([]byte(block), &spec)).To(Succeed(), "%s is placed by %s", o.Name, field)
		placement := o.Placement(operand.Input{Spec: effective.Of(spec)})
		g.Expect(placement.PriorityClassName).To(BeEquivalentTo("its-own"), "%s is placed by %s", o.Name, field)
	}
}

func TestPlacementFields(t *testing.T) {
	want := map[operand.Name]string{
		"node-discovery": "spec.nodeDiscovery", "driver": "spec.driver", "container-toolkit": "spec.toolkit",
		"device-plugin": "spec.devicePlugin", "mps-control-daemon": "spec.devicePlugin",
		"gpu-feature-discovery": "spec.gfd", "dcgm": "spec.dcgm", "dcgm-exporter": "spec.dcgmExporter",
		"mig-manager": "spec.migManager", "node-status-exporter": "spec.nodeStatusExporter",
		"operator-validator": "spec.validator",
	}
	got := map[operand.Name]string{}
	for _, o := range tabled(t) {
		if o.Placement != nil {
			got[o.Name] = o.Placement(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).Field
		}
	}
	NewWithT(t).Expect(got).To(BeComparableTo(want))
}

// A spec can disable any set of operands. The others must start on a node.
func TestEverySetOfOperandsStarts(t *testing.T) {
	all := catalogue(t)
	for chosen := range 1 << len(all) {
		var installed operand.Catalogue
		for i, o := range all {
			if chosen&(1<<i) != 0 {
				// An operand that requires an absent one in the cluster is held, which is not the subject here.
				o.Requires = slices.DeleteFunc(slices.Clone(o.Requires), func(r operand.Requirement) bool {
					return r.Scope == operand.Cluster
				})
				installed = append(installed, o)
			}
		}
		if stuck := stuckOperand(installed); stuck != "" {
			t.Errorf("%v: %s never starts", names(installed), stuck)
		}
	}
}

// stuckOperand simulates the start of a node: in each round, every pod starts whose waits are over, and writes its
// markers in order as far as it can. It returns an operand that never gets ready; empty if there is none.
func stuckOperand(installed operand.Catalogue) operand.Name {
	written, ready := map[labels.Marker]bool{}, map[operand.Name]bool{}
	for range 3 * len(installed) {
		for _, o := range installed {
			if started(installed, o, written, ready) && provesAll(installed, o, written, ready) {
				ready[o.Name] = true
			}
		}
	}
	for _, o := range installed {
		if !ready[o.Name] {
			return o.Name
		}
	}
	return ""
}

func started(
	installed operand.Catalogue,
	o operand.Operand,
	written map[labels.Marker]bool,
	ready map[operand.Name]bool,
) bool {
	for _, marker := range installed.AwaitedMarkers(o) {
		if !written[marker] {
			return false
		}
	}
	for _, other := range installed {
		if o.NeedsInjection && other.IsInjector && !ready[other.Name] {
			return false
		}
	}
	return true
}

func provesAll(
	installed operand.Catalogue,
	o operand.Operand,
	written map[labels.Marker]bool,
	ready map[operand.Name]bool,
) bool {
	writes := installed.WritesMarkers(o)
	for _, proof := range o.Proofs {
		if !writes[proof.Marker] {
			continue
		}
		if _, exists := installed.Find(proof.Of); exists && !ready[proof.Of] {
			return false
		}
		written[proof.Marker] = true
	}
	return true
}

func TestMarkerWriters(t *testing.T) {
	all := catalogue(t)
	tests := map[string]struct {
		absent operand.Name
		want   map[labels.Marker]operand.Name
	}{
		"all operands": {
			want: map[labels.Marker]operand.Name{
				labels.MarkerDriver: "container-toolkit", labels.MarkerToolkit: "operator-validator",
				labels.MarkerCUDA: "operator-validator", labels.MarkerPlugin: "operator-validator",
			},
		},
		"no toolkit": {
			absent: "container-toolkit",
			want: map[labels.Marker]operand.Name{
				labels.MarkerDriver: "operator-validator", labels.MarkerToolkit: "operator-validator",
				labels.MarkerCUDA: "operator-validator", labels.MarkerPlugin: "operator-validator",
			},
		},
		"no driver: the driver of the host is validated": {
			absent: "driver",
			want: map[labels.Marker]operand.Name{
				labels.MarkerDriver: "container-toolkit", labels.MarkerToolkit: "operator-validator",
				labels.MarkerCUDA: "operator-validator", labels.MarkerPlugin: "operator-validator",
			},
		},
		"no device plugin: nothing to allocate, no marker": {
			absent: "device-plugin",
			want: map[labels.Marker]operand.Name{
				labels.MarkerDriver: "container-toolkit", labels.MarkerToolkit: "operator-validator",
				labels.MarkerCUDA: "operator-validator",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			installed := slices.DeleteFunc(slices.Clone(all), func(o operand.Operand) bool { return o.Name == test.absent })
			got := map[labels.Marker]operand.Name{}
			for _, o := range installed {
				for marker, writes := range installed.WritesMarkers(o) {
					if writes && got[marker] != "" {
						t.Errorf("both %s and %s write %s", got[marker], o.Name, marker)
					}
					if writes {
						got[marker] = o.Name
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAssetsMatchCatalogue(t *testing.T) {
	entries, err := fs.ReadDir(assets.FS, ".")
	if err != nil {
		t.Fatal(err)
	}
	var folders []operand.Name
	for _, entry := range entries {
		if entry.IsDir() {
			folders = append(folders, operand.Name(entry.Name()))
		}
	}
	// The pods that clean up hosts are no operand.
	want := append(names(catalogue(t)), "node-cleanup")
	slices.Sort(want)
	slices.Sort(folders)
	if diff := cmp.Diff(want, folders); diff != "" {
		t.Errorf("-catalogue +assets:\n%s", diff)
	}
}

// NVSentinel, k8s-driver-manager and scripts of users set these labels by name.
func TestDeployLabels(t *testing.T) {
	g := NewWithT(t)
	var got []string
	for _, o := range catalogue(t) {
		if len(o.Workloads) == 0 {
			continue
		}
		g.Expect(validation.IsQualifiedName(o.Name.DeployLabel())).To(BeEmpty())
		got = append(got, o.Name.DeployLabel())
	}
	g.Expect(got).To(ContainElements(
		"nvidia.com/gpu.deploy.driver",
		"nvidia.com/gpu.deploy.container-toolkit",
		"nvidia.com/gpu.deploy.device-plugin",
		"nvidia.com/gpu.deploy.operator-validator",
		"nvidia.com/gpu.deploy.gpu-feature-discovery",
		"nvidia.com/gpu.deploy.dcgm",
		"nvidia.com/gpu.deploy.dcgm-exporter",
		"nvidia.com/gpu.deploy.mig-manager",
		"nvidia.com/gpu.deploy.node-status-exporter",
		// The operator's own: it follows the device plugin's, which other tools use.
		"nvidia.com/gpu.deploy.mps-control-daemon",
	))
}

// Only the operands that a GPU needs to be usable have a stage. Failures of the others are reported, but do not make
// the node unready.
func TestStagesOfOperands(t *testing.T) {
	want := map[operand.Name]v1.Stage{
		"driver": v1.StageDriver, "container-toolkit": v1.StageToolkit,
		"device-plugin": v1.StageDevicePlugin, "operator-validator": v1.StageValidated,
	}
	for _, o := range catalogue(t) {
		if o.Stage != want[o.Name] {
			t.Errorf("%s has stage %q, want %q", o.Name, o.Stage, want[o.Name])
		}
	}
}
