package upgrade

import (
	"slices"
	"strings"
	"time"
)

// Resting is what a node that is AtRest means for the plans of other nodes: its part in the budgets of its group, and
// how long its upgrade took.
type Resting struct {
	Name, Group string
	// Installs, Partitioned and UpToDate are what the Node has of these names.
	Installs, Partitioned, UpToDate bool
	// Unavailable is why its GPUs cannot be used by new pods; empty if they can.
	Unavailable string
	// Upgraded: the upgrade to its current target has ended, and took Took.
	Upgraded bool
	Took     time.Duration
}

// Resting returns what the node means for the plans of others while it is AtRest.
func (n *Node) Resting() Resting {
	took, upgraded := n.took()
	return Resting{
		Name: n.Name, Group: n.Group, Installs: n.Installs, Partitioned: n.MIG.Partitioned, UpToDate: n.UpToDate(),
		Unavailable: n.unavailable(), Upgraded: upgraded, Took: took,
	}
}

// took returns how long the upgrade of the node to its current target took; false if none has ended.
func (n *Node) took() (time.Duration, bool) {
	record := n.ownRecord()
	if record == nil || record.State != StateDone || record.Started.IsZero() || record.Target != n.Target {
		return 0, false
	}
	return record.Since.Sub(record.Started), true
}

// Rest has the nodes that are AtRest as sums by group, so that a plan need not look at each of them. The zero value has
// none. It is not safe for concurrent use.
type Rest struct{ groups map[string]*restOf }

// restOf has the nodes of one group.
type restOf struct {
	nodes, upToDate  int
	drivers, layouts restingShare
	// upgraded is the number of nodes that are Upgraded, and took how long that took in all.
	upgraded int
	took     time.Duration
}

// restingShare is the part of the nodes at rest in a share of a budget.
type restingShare struct {
	size int
	// unavailable are those whose GPUs cannot be used, by name. It is not modified once it is shared with a copy.
	unavailable []namedCause
	shared      bool
}

// namedCause is a node and why its GPUs cannot be used.
type namedCause struct{ node, cause string }

// Add adds a node that is not among them.
func (r *Rest) Add(node *Resting) {
	if r.groups == nil {
		r.groups = map[string]*restOf{}
	}
	if r.groups[node.Group] == nil {
		r.groups[node.Group] = &restOf{}
	}
	r.groups[node.Group].count(node, 1)
}

// Remove removes a node that was added with the same values.
func (r *Rest) Remove(node *Resting) {
	group := r.groups[node.Group]
	if group.count(node, -1); group.nodes == 0 {
		delete(r.groups, node.Group)
	}
}

// Copy returns an independent copy. It does not depend on the number of nodes what that costs.
func (r *Rest) Copy() Rest {
	groups := make(map[string]*restOf, len(r.groups))
	for name, group := range r.groups {
		group.drivers.shared, group.layouts.shared = true, true
		groups[name] = new(*group)
	}
	return Rest{groups}
}

// UpToDate returns the number of nodes whose driver is up to date.
func (r *Rest) UpToDate() int {
	count := 0
	for _, group := range r.groups {
		count += group.upToDate
	}
	return count
}

// group returns the nodes of a group.
func (r *Rest) group(name string) restOf {
	if group := r.groups[name]; group != nil {
		return *group
	}
	return restOf{}
}

// count adds the node, or removes it if by is -1.
func (g *restOf) count(node *Resting, by int) {
	g.nodes += by
	if node.UpToDate {
		g.upToDate += by
	}
	if node.Installs {
		g.drivers.count(node, by)
	}
	if node.Partitioned {
		g.layouts.count(node, by)
	}
	if node.Upgraded {
		g.upgraded += by
		g.took += time.Duration(by) * node.Took
	}
}

func (s *restingShare) count(node *Resting, by int) {
	s.size += by
	if node.Unavailable == "" {
		return
	}
	if s.shared {
		s.unavailable, s.shared = slices.Clone(s.unavailable), false
	}
	at, _ := slices.BinarySearchFunc(s.unavailable, node.Name, func(known namedCause, name string) int {
		return strings.Compare(known.node, name)
	})
	if by > 0 {
		s.unavailable = slices.Insert(s.unavailable, at, namedCause{node.Name, node.Unavailable})
	} else {
		s.unavailable = slices.Delete(s.unavailable, at, at+1)
	}
}
