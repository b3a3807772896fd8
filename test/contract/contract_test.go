package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// TestContract checks each row of each table against the rendered objects.
func TestContract(t *testing.T) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	installer := shipped(t)
	var summary []string
	for name, file := range tables(t) {
		t.Run(name, func(t *testing.T) {
			tb := load(t, file)
			if defects := tb.defects(); len(defects) > 0 {
				t.Fatalf("%s: %s", file, strings.Join(defects, "\n"))
			}
			held := tb.judge(t, catalogue, installer)
			summary = append(summary, fmt.Sprintf("%-24s %3d of %3d rows pass", name, held, len(tb.Rows)))
		})
	}
	slices.Sort(summary)
	t.Logf("\n%s", strings.Join(summary, "\n"))
}

// judge returns how many rows pass. Rows of an operand that is not in the catalogue yet are skipped.
func (tb table) judge(t *testing.T, catalogue operand.Catalogue, installer installer) int {
	t.Helper()
	scenarios := tb.renderAll(t, catalogue)
	missing, held := map[operand.Name]int{}, 0
	for _, row := range tb.Rows {
		if _, inCatalogue := catalogue.Find(row.Operand); !inCatalogue {
			missing[row.Operand]++
			continue
		}
		found, problem := tb.find(t, row, scenarios, installer)
		if problem == "" && (row.SameAs != nil || row.DiffersFrom != nil) {
			var other any
			other, problem = tb.find(t, row.moved(), scenarios, installer)
			if problem == "" {
				problem = row.judge(found, other)
			}
		} else if problem == "" {
			problem = row.judge(found, nil)
		}
		if problem != "" {
			t.Errorf("%s, row %s (%s; %s %s %s in %s): %s",
				row.Operand, row.ID, row.Source, row.What, row.Container, row.Name, row.Scenario, problem)
			continue
		}
		held++
	}
	for name, rows := range missing {
		t.Logf("SKIPPED: %d rows of %s, which is not in the catalogue yet", rows, name)
	}
	return held
}

// moved returns the row with the other place that it compares with.
func (r row) moved() row {
	other := r.SameAs
	if other == nil {
		other = r.DiffersFrom
	}
	if other.Scenario != "" {
		r.Scenario = other.Scenario
	}
	if other.Container != "" {
		r.Container = other.Container
	}
	return r
}

// find returns the value that the row checks, or why it cannot be found.
func (tb table) find(
	t *testing.T, r row, scenarios map[string]map[operand.Name]rendered, installer installer,
) (any, string) {
	t.Helper()
	result := scenarios[r.Scenario][r.Operand]
	if result.err != nil {
		return nil, "it is not rendered: " + result.err.Error()
	}
	p := place{rendered: result, row: r, shipped: installer}
	if len(result.daemonSets) > 0 {
		p.ds = result.daemonSets[0]
	}
	if p.ds != nil && r.Operand == tb.Operand && !strings.HasPrefix(p.ds.Name, tb.DaemonSet) {
		return nil, fmt.Sprintf("the DaemonSet is called %s, not %s", p.ds.Name, tb.DaemonSet)
	}
	if problems := malformed(result.daemonSets); len(problems) > 0 {
		return nil, "the API server would refuse the DaemonSet: " + strings.Join(problems, "; ")
	}
	found, err := extractors[r.What](p)
	if err != nil {
		return nil, err.Error()
	}
	return plain(t, found), ""
}

// malformed returns why the API server would reject the DaemonSet, which a row about one field does not check.
func malformed(daemonSets []*appsv1.DaemonSet) []string {
	var problems []string
	complain := func(format string, arguments ...any) { problems = append(problems, fmt.Sprintf(format, arguments...)) }
	for _, ds := range daemonSets {
		pod := &ds.Spec.Template.Spec
		selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(apilabels.Set(ds.Spec.Template.Labels)) {
			complain("its selector %v does not select its pods", ds.Spec.Selector)
		}
		if pod.HostPID && pod.ShareProcessNamespace != nil && *pod.ShareProcessNamespace {
			complain("hostPID and shareProcessNamespace exclude each other")
		}
		volumes := malformedVolumes(pod, complain)
		for _, list := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range list {
				malformedContainer(&list[i], volumes, complain)
			}
		}
	}
	return problems
}

// malformedVolumes returns the names of the volumes, or why one is invalid.
func malformedVolumes(pod *corev1.PodSpec, complain func(string, ...any)) map[string]bool {
	volumes := map[string]bool{}
	for _, volume := range pod.Volumes {
		if volumes[volume.Name] || len(validation.IsDNS1123Label(volume.Name)) > 0 {
			complain("volume %q is duplicated or has an invalid name", volume.Name)
		}
		volumes[volume.Name] = true
	}
	return volumes
}

func malformedContainer(c *corev1.Container, volumes map[string]bool, complain func(string, ...any)) {
	paths, variables := map[string]bool{}, map[string]bool{}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			complain("container %s mounts the volume %q, which does not exist", c.Name, m.Name)
		}
		if paths[m.MountPath] {
			complain("container %s mounts two volumes at %s", c.Name, m.MountPath)
		}
		paths[m.MountPath] = true
	}
	for _, variable := range c.Env {
		if variables[variable.Name] {
			complain("container %s sets %s twice", c.Name, variable.Name)
		}
		variables[variable.Name] = true
	}
	if c.Image == "" {
		complain("container %s has no image", c.Name)
	}
}
