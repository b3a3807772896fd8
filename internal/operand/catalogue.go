package operand

import (
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Catalogue is a list of operands. NewCatalogue sorts it: each operand comes after those that it requires.
type Catalogue []Operand

// Find returns the operand with the name.
func (c Catalogue) Find(name Name) (*Operand, bool) {
	for i := range c {
		if c[i].Name == name {
			return &c[i], true
		}
	}
	return nil, false
}

// HostRuntime returns what the spec tells of container runtimes, for nodes of any node pool: the paths sorted, each
// once.
func (c Catalogue) HostRuntime(in Input) HostRuntime {
	var all HostRuntime
	for i := range c {
		if c[i].HostRuntime == nil {
			continue
		}
		inputs := []Input{in}
		for _, nodePool := range NodePools(in.Spec) {
			inputs = append(inputs, in.ForNodePool(nodePool))
		}
		for _, of := range inputs {
			told := c[i].HostRuntime(of)
			all.Files, all.Sockets = append(all.Files, told.Files...), append(all.Sockets, told.Sockets...)
			all.Keep = all.Keep || told.Keep
		}
	}
	for _, paths := range []*[]string{&all.Files, &all.Sockets} {
		slices.Sort(*paths)
		*paths = slices.Compact(*paths)
	}
	return all
}

// Uses returns the objects that any operand uses, for nodes of any node pool, each once.
func (c Catalogue) Uses(in Input) []Reference {
	var all []Reference
	c.forEachUse(in, func(_ *Operand, use Use) {
		if !slices.Contains(all, use.Reference) {
			all = append(all, use.Reference)
		}
	})
	return all
}

// UsersOf returns the operands that use an object, for nodes of any node pool, each once, in the catalogue's order.
func (c Catalogue) UsersOf(in Input, reference Reference) []Name {
	var users []Name
	c.forEachUse(in, func(o *Operand, use Use) {
		if use.Reference == reference && !slices.Contains(users, o.Name) {
			users = append(users, o.Name)
		}
	})
	return users
}

// Assume returns the contents of a cluster of which only these are known: every other object that an operand uses
// exists, with the keys that it must have.
func (c Catalogue) Assume(in Input, known map[Reference]Content) map[Reference]Content {
	contents := map[Reference]Content{}
	c.forEachUse(in, func(_ *Operand, use Use) {
		content := contents[use.Reference]
		content.Assumed = true
		for _, key := range use.Keys {
			// Several operands may use one object, and each key is one file.
			if !slices.Contains(content.Keys, key) {
				content.Keys = append(content.Keys, key)
			}
		}
		contents[use.Reference] = content
	})
	maps.Copy(contents, known)
	return contents
}

func (c Catalogue) forEachUse(in Input, do func(*Operand, Use)) {
	each := func(o *Operand, in Input) {
		for _, use := range o.UsesOf(in) {
			do(o, use)
		}
	}
	nodePools, drivers := NodePools(in.Spec), in.DriverPools()
	for i := range c {
		each(&c[i], in)
		for _, driver := range drivers {
			if c[i].PerPool {
				each(&c[i], in.ForNodePool(driver))
			}
		}
		for _, nodePool := range nodePools {
			if c[i].VariesIn(nodePool.NodePoolSpec) {
				each(&c[i], in.ForNodePool(nodePool))
			}
		}
	}
}

// Images returns the default images of all operands, each once, sorted by name.
func (c Catalogue) Images() []image.Default {
	found := map[string]image.Default{}
	for _, o := range c {
		for _, i := range o.Images {
			found[i.Name] = i
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b image.Default) int { return strings.Compare(a.Name, b.Name) })
}
