package main

import (
	"cmp"
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// nodeOrder is a value of --sort-by, and how it orders nodes.
type nodeOrder struct {
	key     string
	compare func(a, b *overview.Node) int
}

// nodeOrders are the values of --sort-by. Nodes with more devices, and with later changes, come first.
var nodeOrders = []nodeOrder{
	{"name", func(a, b *overview.Node) int { return cmp.Compare(a.Name, b.Name) }},
	{"product", func(a, b *overview.Node) int { return cmp.Compare(a.Product, b.Product) }},
	{"reason", func(a, b *overview.Node) int { return cmp.Compare(a.Reason, b.Reason) }},
	{"usable", func(a, b *overview.Node) int { return cmp.Compare(b.GPUs.Usable, a.GPUs.Usable) }},
	{"free", func(a, b *overview.Node) int { return cmp.Compare(freeDevices(b), freeDevices(a)) }},
	{"since", func(a, b *overview.Node) int { return cmp.Compare(changedAt(b), changedAt(a)) }},
}

// nodeSortKeys returns the values of --sort-by.
func nodeSortKeys() []string {
	var keys []string
	for _, order := range nodeOrders {
		keys = append(keys, order.key)
	}
	return keys
}

// checkSort fails if a value of --sort-by is none; "" is the default order.
func checkSort(key string) error {
	if key == "" {
		return nil
	}
	return oneOf("sort-by", key, nodeSortKeys())
}

// sortNodes sorts nodes by a key; "" keeps their order, in which equal ones stay.
func sortNodes(nodes []overview.Node, key string) {
	for _, order := range nodeOrders {
		if order.key == key {
			slices.SortStableFunc(nodes, func(a, b overview.Node) int { return order.compare(&a, &b) })
		}
	}
}

// freeDevices returns how many devices of all resources are free; what is not known counts as none.
func freeDevices(n *overview.Node) (sum int64) {
	for _, r := range n.Resources {
		if r.Free != nil {
			sum += *r.Free
		}
	}
	return sum
}

// changedAt returns since when the node is in its state, in seconds; 0 if that is not known.
func changedAt(n *overview.Node) int64 {
	if n.Since.IsZero() {
		return 0
	}
	return n.Since.Unix()
}
