package manifests

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// finding is a weakness that a check sees.
type finding struct {
	check string
	// object is KIND/NAME.
	object string
	// part is a container, a volume, both as CONTAINER:VOLUME, a port or the resources of a rule; empty for the
	// whole object.
	part string
}

// target is what the patterns of a reason are compared with.
func (f finding) target() string {
	if f.part == "" {
		return f.object
	}
	return f.object + "/" + f.part
}

// verdict is what checks say of objects.
type verdict struct {
	// judged is how many objects each check looked at.
	judged map[string]int
	found  map[finding]bool
}

func newVerdict() *verdict { return &verdict{judged: map[string]int{}, found: map[finding]bool{}} }

// add takes over what another verdict says.
func (v *verdict) add(more *verdict) {
	for name, n := range more.judged {
		v.judged[name] += n
	}
	maps.Copy(v.found, more.found)
}

// of are the findings of a check, sorted.
func (v *verdict) of(check string) []finding {
	var found []finding
	for f := range v.found {
		if f.check == check {
			found = append(found, f)
		}
	}
	return slices.SortedFunc(slices.Values(found), func(a, b finding) int { return strings.Compare(a.target(), b.target()) })
}

// check returns the parts of what an object says that are weak, "" for the whole of it.
type check[T any] func(c *cluster, of T) []string

// wholeIf is a finding about the whole object, or none.
func wholeIf(weak bool) []string {
	if weak {
		return []string{""}
	}
	return nil
}

// judge has each check look at each object.
func judge[T any](v *verdict, c *cluster, checks map[string]check[T], objects []named[T]) {
	for name, weak := range checks {
		v.judged[name] += len(objects)
		for _, o := range objects {
			for _, part := range weak(c, o.says) {
				v.found[finding{name, o.object, part}] = true
			}
		}
	}
}

// byOwnChecks is what the checks of this package say of the objects of a cluster. Each of them is in judged.
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
