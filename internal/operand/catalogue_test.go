package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// onePool is the input of a spec with a node pool named a.
func onePool(driver *v1.NodePoolDriverSpec) operand.Input {
	return operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{
		{Name: "a", NodeSelector: v1.NodePoolSelector{"a": "b"}, Driver: driver},
	}})}
}

func TestFind(t *testing.T) {
	g := NewWithT(t)
	catalogue := operand.Catalogue{{Name: "a"}, {Name: "b"}}
	found, exists := catalogue.Find("b")
	g.Expect(exists).To(BeTrue())
	g.Expect(found).To(BeIdenticalTo(&catalogue[1]))
	_, exists = catalogue.Find("c")
	g.Expect(exists).To(BeFalse())
}

// Paths are those of all node pools, sorted, each once.
func TestHostRuntime(t *testing.T) {
	g := NewWithT(t)
	catalogue := operand.Catalogue{{Name: "a"}, {Name: "b", HostRuntime: func(in operand.Input) operand.HostRuntime {
		if in.NodePool != nil {
			return operand.HostRuntime{Files: []string{"/etc/b", "/etc/pool"}, Sockets: []string{"/run/a"}, Keep: true}
		}
		return operand.HostRuntime{Files: []string{"/etc/z", "/etc/b"}, Sockets: []string{"/run/b"}}
	}}}
	g.Expect(catalogue.HostRuntime(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})})).To(Equal(
		operand.HostRuntime{Files: []string{"/etc/b", "/etc/z"}, Sockets: []string{"/run/b"}}))
	g.Expect(catalogue.HostRuntime(onePool(nil))).To(Equal(operand.HostRuntime{
		Files: []string{"/etc/b", "/etc/pool", "/etc/z"}, Sockets: []string{"/run/a", "/run/b"}, Keep: true,
	}))
}

func TestImagesOfAllOperands(t *testing.T) {
	b, a, c := image.Default{Name: "b"}, image.Default{Name: "a"}, image.Default{Name: "c"}
	catalogue := operand.Catalogue{{Name: "x", Images: []image.Default{b, c}}, {Name: "y", Images: []image.Default{a, b}}}
	NewWithT(t).Expect(catalogue.Images()).To(Equal([]image.Default{a, b, c}))
}

func TestNodeDependants(t *testing.T) {
	requires := func(name, on operand.Name, scope operand.Scope) operand.Operand {
		return operand.Operand{Name: name, Requires: []operand.Requirement{{On: on, Scope: scope}}}
	}
	catalogue := operand.Catalogue{
		{Name: "driver"}, {Name: "discovery"}, requires("toolkit", "driver", operand.Node),
		requires("plugin", "toolkit", operand.Node), requires("rules", "plugin", operand.Cluster),
		requires("labels", "discovery", operand.Node), requires("lost", "missing", operand.Node),
	}
	found := catalogue.NodeDependants(func(o *operand.Operand) bool { return o.Name == "driver" })
	NewWithT(t).Expect(found).To(Equal(map[operand.Name]bool{"toolkit": true, "plugin": true}))
}

// An operand uses objects for the nodes of a node pool only if the node pool gives it DaemonSets of its own.
func TestUsesOfNodePools(t *testing.T) {
	g := NewWithT(t)
	uses := func(name operand.Name, varies, perPool bool) operand.Operand {
		return operand.Operand{
			Name: name, PerPool: perPool, Varies: func(v1.NodePoolSpec) bool { return varies },
			References: func(in operand.Input) []operand.Use {
				pool := "none"
				if in.NodePool != nil {
					pool = in.NodePool.Name
				}
				return []operand.Use{operand.SecretUse("spec.a", string(name)+"-"+pool, "key")}
			},
		}
	}
	in := onePool(nil)
	in.NVIDIADrivers = []operand.NVIDIADriver{{Name: "object", Pool: "object", Spec: in.Spec}}
	secret := func(name string) operand.Reference { return operand.Reference{Kind: operand.Secret, Name: name} }
	catalogue := operand.Catalogue{uses("same", false, false), uses("varies", true, false), uses("driver", false, true)}
	g.Expect(catalogue.Uses(in)).To(Equal([]operand.Reference{
		secret("same-none"), secret("varies-none"), secret("varies-a"), secret("driver-none"), secret("driver-object"),
	}))
	read := operand.Content{Digest: "1"}
	g.Expect(catalogue[:1].Assume(in, map[operand.Reference]operand.Content{secret("other"): read})).To(Equal(
		map[operand.Reference]operand.Content{
			secret("same-none"): {Keys: []string{"key"}, Assumed: true}, secret("other"): read,
		}))
}
