package page

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/status/reasons"
)

// state is how something is shown: by a word, a sign and a colour, which alone says nothing.
type state struct {
	// Class is the one of the style.
	Class, Sign, Text string
}

// The states.
var (
	good     = state{"good", "✓", "Ready"}
	bad      = state{"bad", "✕", "Not ready"}
	unknown  = state{"unknown", "?", "Unknown"}
	excluded = state{"excluded", "–", "Excluded"}
)

// order has the states of nodes as the overview orders them.
var order = []overview.Readiness{overview.NotReady, overview.Unknown, overview.Ready, overview.Excluded}

func stateOf(ready overview.Readiness) state {
	switch ready {
	case overview.Ready:
		return good
	case overview.NotReady:
		return bad
	case overview.Excluded:
		return excluded
	}
	return unknown
}

// policyView is the policy.
type policyView struct {
	state
	Name, Reason, Message string
	// Next is the next step; empty if none is known.
	Next   string
	Limits []overview.Limit
}

func policyOf(p *overview.Policy, known map[string]reasons.Explanation) policyView {
	if p == nil {
		return policyView{
			state: state{bad.Class, bad.Sign, "No ClusterPolicy"}, Message: "The operator does nothing until one is created.",
		}
	}
	v := policyView{state: unknown, Name: p.Name, Reason: p.Reason, Message: p.Message, Limits: p.Limits}
	switch p.Ready {
	case metav1.ConditionTrue:
		v.state = good
	case metav1.ConditionFalse:
		v.state, v.Next = bad, known[p.Reason].Remedy
	}
	return v
}

// upgradeView is the progress of the driver upgrades.
type upgradeView struct {
	*v1.UpgradeStatus
	// Nodes whose drivers the operator upgrades.
	Nodes int32
	// Remaining is an estimate of how long they take; empty if there is none.
	Remaining string
}

// upgradeOf returns the upgrade of a policy, which may be nil; nil if none is due.
func upgradeOf(p *overview.Policy) *upgradeView {
	if p == nil || !p.IsUpgrading() {
		return nil
	}
	u := p.Upgrade
	v := &upgradeView{UpgradeStatus: u, Nodes: u.Pending + u.InProgress + u.Done + u.Failed}
	if u.RemainingSeconds > 0 {
		v.Remaining = duration.HumanDuration(time.Duration(u.RemainingSeconds) * time.Second)
	}
	return v
}

// count is how many nodes are in a state. Before is how many nodes are in one that precedes it.
type count struct {
	state
	Nodes, Before int
}

// countsOf counts the nodes of groups by state, without states that no node is in.
func countsOf(groups []overview.Group) []count {
	var all []count
	before := 0
	for _, ready := range order {
		c := count{state: stateOf(ready), Before: before}
		for _, group := range groups {
			if group.Ready == ready {
				c.Nodes += group.Nodes
			}
		}
		if c.Nodes > 0 {
			all = append(all, c)
		}
		before += c.Nodes
	}
	return all
}

// product is what the cluster has of a model of GPUs.
type product struct {
	// Name of the model, or Unknown.
	Name string
	// Nodes with the model, by state. Unready are those that are neither ready nor excluded.
	Nodes, Ready, Unready, Excluded int
	// GPUs of the nodes that are not excluded.
	GPUs overview.GPUs
}

// productsOf adds up groups by product: those with most nodes come first.
func productsOf(groups []overview.Group) []product {
	var all []product
	for _, group := range groups {
		name := cmp.Or(group.Product, unknown.Text)
		at := slices.IndexFunc(all, func(p product) bool { return p.Name == name })
		if at < 0 {
			at = len(all)
			all = append(all, product{Name: name})
		}
		p := &all[at]
		p.Nodes += group.Nodes
		switch group.Ready {
		case overview.Excluded:
			p.Excluded += group.Nodes
			continue
		case overview.Ready:
			p.Ready += group.Nodes
		default:
			p.Unready += group.Nodes
		}
		p.GPUs.Total += group.GPUs.Total
		p.GPUs.Usable += group.GPUs.Usable
	}
	slices.SortFunc(all, func(a, b product) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// cause is a reason that nodes have, in one state.
type cause struct {
	state
	Reason string
	// Nodes with the reason.
	Nodes int
	reasons.Explanation
}

// causesOf adds up groups by state and reason, in the order of groups: what is not ready comes first.
func causesOf(groups []overview.Group, known map[string]reasons.Explanation) []cause {
	var all []cause
	for _, group := range groups {
		if group.Reason == "" {
			continue
		}
		s := stateOf(group.Ready)
		at := slices.IndexFunc(all, func(c cause) bool { return c.Reason == group.Reason && c.state == s })
		if at < 0 {
			at = len(all)
			all = append(all, cause{state: s, Reason: group.Reason, Explanation: known[group.Reason]})
		}
		all[at].Nodes += group.Nodes
	}
	return all
}

// devices is what all nodes offer of a resource.
type devices struct {
	Resource string
	// Offered devices. Those in use are requested by pods; of the others, those on nodes that are ready and take pods are
	// free, and the rest is withheld.
	Offered, InUse, Free, Withheld int64
}

// devicesOf adds up what nodes that are not excluded offer, by the name of the resource.
func devicesOf(nodes []overview.Node) []devices {
	var all []devices
	for i := range nodes {
		n := &nodes[i]
		if n.Ready == overview.Excluded {
			continue
		}
		for _, r := range n.Resources {
			at := slices.IndexFunc(all, func(d devices) bool { return d.Resource == r.Name })
			if at < 0 {
				at = len(all)
				all = append(all, devices{Resource: r.Name})
			}
			all[at].add(r, n.Ready == overview.Ready && !n.Cordoned)
		}
	}
	slices.SortFunc(all, func(a, b devices) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}

// add adds what a node offers. Without the pods, nothing but that is known.
func (d *devices) add(r overview.Resource, takesPods bool) {
	d.Offered += r.Allocatable
	if r.Free == nil {
		return
	}
	d.InUse += r.Allocatable - *r.Free
	if takesPods {
		d.Free += *r.Free
	} else {
		d.Withheld += *r.Free
	}
}

// node is a row of the table of nodes.
type node struct {
	*overview.Node
	State state
	Since string
	// Next is the next step for its reason, and HealthNext the one for what the health agent reports; empty for none.
	Next, HealthNext string
	// Explained reports whether kubectl gpu explain has more to say.
	Explained bool
}

func nodeOf(n *overview.Node, in Input) node {
	return node{
		Node: n, State: stateOf(n.Ready), Since: n.SinceText(in.Read), Next: in.Reasons[n.Reason].Remedy,
		HealthNext: in.Reasons[n.Health].Remedy,
		Explained:  n.Ready != overview.Ready && n.Ready != overview.Excluded || n.Health != "",
	}
}
