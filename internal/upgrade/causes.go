package upgrade

import "slices"

// causes are nodes by name, each with its cause, from which no node is removed. A full budget refuses each node that
// waits with a message that names the first of them, so these are known without sorting all.
type causes struct {
	of map[string]string
	// first are the first names: one more than a message lists.
	first []string
}

func newCauses() causes { return causes{of: map[string]string{}} }

// set sets the cause of a node.
func (c *causes) set(node, cause string) {
	c.of[node] = cause
	at, known := slices.BinarySearch(c.first, node)
	if known || at > listed {
		return
	}
	c.first = slices.Insert(c.first, at, node)
	c.first = c.first[:min(len(c.first), listed+1)]
}

// list names the first nodes, each with its cause.
func (c *causes) list() string {
	named := make([]string, len(c.first))
	for i, node := range c.first {
		named[i] = node + " " + c.of[node]
	}
	return list(named)
}
