package manifests

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// finding is a weakness that a check reports.
type finding struct {
	check string
	// object is KIND/NAME.
	object string
	// part is a container, a volume, CONTAINER:VOLUME, a port or the resources of a rule; empty for the whole object.
	part string
}

// target returns the text that the patterns of a reason match.
func (f finding) target() string {
	if f.part == "" {
		return f.object
	}
	return f.object + "/" + f.part
}

// verdict has the findings of checks.
type verdict struct {
	// judged is how many objects each check has checked.
	judged map[string]int
	found  map[finding]bool
}

func newVerdict() *verdict { return &verdict{judged: map[string]int{}, found: map[finding]bool{}} }

// add adds the findings of another verdict.
func (v *verdict) add(more *verdict) {
	for name, n := range more.judged {
		v.judged[name] += n
	}
	maps.Copy(v.found, more.found)
}

// of returns the findings of a check, sorted.
func (v *verdict) of(check string) []finding {
	var found []finding
	for f := range v.found {
		if f.check == check {
			found = append(found, f)
		}
	}
	return slices.SortedFunc(slices.Values(found),
		func(a, b finding) int { return strings.Compare(a.target(), b.target()) })
}

// check returns the weak parts of an object, "" for the whole object.
type check[T any] func(c *cluster, of T) []string

// wholeIf returns a finding for the whole object if the condition is true.
func wholeIf(weak bool) []string {
	if weak {
		return []string{""}
	}
	return nil
}

// judge runs each check on each object.
func judge[T any](v *verdict, c *cluster, checks map[string]check[T], objects []named[T]) {
	for name, weak := range checks {
		v.judged[name] += len(objects)
		for _, o := range objects {
			for _, part := range weak(c, o.spec) {
				v.found[finding{name, o.object, part}] = true
			}
		}
	}
}

// byOwnChecks returns the findings of this package's checks for the objects of a cluster. Each check is in judged.
func byOwnChecks(objects []*unstructured.Unstructured) (*verdict, error) {
	c, err := newCluster(objects)
	if err != nil {
		return nil, err
	}
	v := newVerdict()
	judge(v, c, podChecks, c.workloads)
	judge(v, c, roleChecks, c.roles)
	judge(v, c, bindingChecks, c.bindings)
	judge(v, c, serviceChecks, c.services)
	judge(v, c, budgetChecks, c.budgets)
	judge(v, c, jobChecks, c.jobs)
	judge(v, c, objectChecks, c.objects)
	return v, nil
}
