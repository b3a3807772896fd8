package upgrade

import (
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// causes are nodes by name, each with its cause, from which no node is removed. A full budget refuses each node that
// waits with a message that names the first of them, so these are known without sorting all.
type causes struct {
	of map[string]string
	// first are the first names of those: one more than a message lists.
	first []string
	// rest are further nodes, which are at rest, by name. It must not be modified.
	rest []namedCause
}

// newCauses returns causes with these nodes at rest.
func newCauses(rest []namedCause) causes { return causes{of: map[string]string{}, rest: rest} }

// set sets the cause of a node that is not at rest.
func (c *causes) set(node, cause string) {
	c.of[node] = cause
	at, known := slices.BinarySearch(c.first, node)
	if known || at > text.Listed {
		return
	}
	c.first = slices.Insert(c.first, at, node)
	c.first = c.first[:min(len(c.first), text.Listed+1)]
}

// count returns the number of nodes.
func (c *causes) count() int { return len(c.of) + len(c.rest) }

// list names the first nodes, each with its cause.
func (c *causes) list() string {
	var named []string
	first, rest := c.first, c.rest
	for len(named) <= text.Listed && len(first)+len(rest) > 0 {
		if len(rest) == 0 || len(first) > 0 && first[0] < rest[0].node {
			named = append(named, first[0]+" "+c.of[first[0]])
			first = first[1:]
			continue
		}
		named = append(named, rest[0].node+" "+rest[0].cause)
		rest = rest[1:]
	}
	return text.List(named)
}
