package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// A selector takes precedence over the default; a discovery label that is lost does not take the driver from a node.
func TestNVIDIADriversOf(t *testing.T) {
	const kernel, owner = "feature.node.kubernetes.io/kernel-version.full", "nvidia.com/gpu-operator.driver.owner"
	drivers := []operand.NVIDIADriver{
		{Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"}}, {Name: "rest", Default: true},
		{Name: "new", NodeSelector: v1.NodePoolSelector{kernel: "7"}},
	}
	for name, test := range map[string]struct {
		labels map[string]string
		want   []int
	}{
		"of a team":                  {map[string]string{"team": "a"}, []int{0}},
		"of another team":            {map[string]string{"team": "b"}, []int{1}},
		"of a kernel":                {map[string]string{kernel: "7"}, []int{2}},
		"of another kernel":          {map[string]string{kernel: "6", owner: "new"}, []int{1}},
		"of two":                     {map[string]string{"team": "a", kernel: "7"}, []int{0, 2}},
		"of a kernel that is lost":   {map[string]string{owner: "new"}, []int{2}},
		"lost, of another driver":    {map[string]string{owner: "a"}, []int{1}},
		"without labels":             {nil, []int{1}},
		"a lost label of its own is": {map[string]string{owner: "a", "team": ""}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(operand.NVIDIADriversOf(drivers, nodeinfo.Facts{Labels: test.labels})).To(Equal(test.want))
		})
	}
}

// What decides about the pods of a driver makes another one of it; how it is upgraded does not.
func TestSameDriver(t *testing.T) {
	spec := func(change func(*v1.ClusterPolicySpec)) effective.Spec {
		s := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{}, DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "all"}}
		s.DaemonSets.Labels = v1.Labels{"a": "1"}
		change(&s)
		return effective.Of(s)
	}
	for name, test := range map[string]struct {
		change func(*v1.ClusterPolicySpec)
		own    *corev1.PodSecurityContext
		want   bool
	}{
		"the same": {change: func(*v1.ClusterPolicySpec) {}, want: true},
		"what all operands have": {change: func(s *v1.ClusterPolicySpec) {
			s.Driver.PriorityClassName, s.Driver.Labels = "all", v1.Labels{"a": "1"}
		}, want: true},
		"another upgrade": {change: func(s *v1.ClusterPolicySpec) {
			s.Driver.UpgradePolicy = &v1.DriverUpgradePolicySpec{AutoUpgrade: new(true)}
		}, want: true},
		"another priority": {change: func(s *v1.ClusterPolicySpec) { s.Driver.PriorityClassName = "own" }},
		"a further label":  {change: func(s *v1.ClusterPolicySpec) { s.Driver.Labels = v1.Labels{"b": "1"} }},
		"an annotation":    {change: func(s *v1.ClusterPolicySpec) { s.Driver.Annotations = v1.Annotations{"b": "1"} }},
		"a toleration": {change: func(s *v1.ClusterPolicySpec) {
			s.Driver.Tolerations = []corev1.Toleration{{Key: "b"}}
		}},
		"another version": {change: func(s *v1.ClusterPolicySpec) { s.Driver.Version = "1" }},
		"a sidecar":       {change: func(s *v1.ClusterPolicySpec) { s.GDRCopy = &v1.GDRCopySpec{Enabled: new(true)} }},
		"a module":        {change: func(s *v1.ClusterPolicySpec) { s.GDS = &v1.GDSSpec{Enabled: new(true)} }},
		"a security context": {
			change: func(*v1.ClusterPolicySpec) {}, own: &corev1.PodSecurityContext{RunAsUser: new(int64(1))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, common := NewWithT(t), spec(func(*v1.ClusterPolicySpec) {})
			driver := operand.NVIDIADriver{Pool: "p", Spec: spec(test.change)}
			driver.Driver.PodSecurityContext = test.own
			g.Expect(driver.SameDriver(common)).To(Equal(test.want))
			pools := operand.Input{Spec: common, NVIDIADrivers: []operand.NVIDIADriver{driver}}.DriverPools()
			g.Expect(pools).To(ConsistOf(And(HaveField("Name", "p"), HaveField("OfNVIDIADriver", true))))
			if (pools[0].Driver == nil) != test.want {
				t.Errorf("the pool has the driver %v", pools[0].Driver)
			}
		})
	}
}

// The certificates that OpenShift trusts are used only if the proxy needs some and the spec has none.
func TestTrustedCA(t *testing.T) {
	for name, test := range map[string]struct {
		hasCA, own, filled, uses, trusts bool
	}{
		"no proxy":   {filled: true},
		"not filled": {hasCA: true, uses: true},
		"filled":     {hasCA: true, filled: true, uses: true, trusts: true},
		"of its own": {hasCA: true, own: true, filled: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, spec := NewWithT(t), v1.ClusterPolicySpec{Global: &v1.GlobalSpec{CABundle: &v1.CABundleSpec{}}}
			if test.own {
				spec.Global.CABundle.ConfigMapName = "mine"
			}
			content := operand.Content{Keys: []string{"other"}}
			if test.filled {
				content.Keys = []string{"ca-bundle.crt"}
			}
			in := operand.Input{
				Spec: effective.Of(spec), OpenShiftCluster: operand.OpenShiftCluster{ProxyHasCA: test.hasCA},
				Contents: map[operand.Reference]operand.Content{
					{Kind: operand.ConfigMap, Name: "gpu-operator-trusted-ca"}: content,
				},
			}
			use := in.TrustedCA()
			g.Expect([]bool{use.Name != "", use.Optional}).To(Equal([]bool{test.uses, test.uses}))
			g.Expect(in.TrustsCluster()).To(Equal(test.trusts))
		})
	}
}

func TestMissingSelectorLabel(t *testing.T) {
	const nfd = "feature.node.kubernetes.io/"
	const kernel, osID = nfd + "kernel-version.full", nfd + "system-os_release.ID"
	for name, test := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"all":                {map[string]string{kernel: "6", osID: "ubuntu", "team": "a"}, ""},
		"one is missing":     {map[string]string{kernel: "6", "team": "a"}, osID},
		"two are missing":    {map[string]string{"team": "a"}, kernel},
		"one differs":        {map[string]string{kernel: "7", "team": "a"}, ""},
		"the user's is gone": {map[string]string{kernel: "6"}, ""},
	} {
		spec := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{}}
		spec.DaemonSets.NodeSelector = v1.Labels{kernel: "6", osID: "ubuntu", "team": "a"}
		in, o := operand.Input{Spec: effective.Of(spec)}, &operand.Operand{Name: "dcgm"}
		NewWithT(t).Expect(in.MissingSelectorLabel(o, nodeinfo.Facts{Labels: test.labels})).To(Equal(test.want), name)
	}
}

func TestNodePoolLabel(t *testing.T) {
	g, varies := NewWithT(t), func(pool v1.NodePoolSpec) bool { return pool.Name == "a" }
	o := operand.Operand{Name: "dcgm"}
	g.Expect(o.NodePoolLabel()).To(BeEmpty())
	g.Expect(o.VariesIn(v1.NodePoolSpec{Name: "a"})).To(BeFalse())
	o.Varies = varies
	g.Expect(o.NodePoolLabel()).To(HaveSuffix("dcgm"))
	g.Expect(o.VariesIn(v1.NodePoolSpec{Name: "a"})).To(BeTrue())
	g.Expect(o.VariesIn(v1.NodePoolSpec{Name: "b"})).To(BeFalse())
	o.PerPool = true
	g.Expect(o.NodePoolLabel()).To(BeEmpty())
}

func TestUsers(t *testing.T) {
	g := NewWithT(t)
	uses := func(name operand.Name, objects ...string) operand.Operand {
		return operand.Operand{Name: name, References: func(operand.Input) []operand.Use {
			var all []operand.Use
			for _, object := range objects {
				all = append(all, operand.ConfigMapUse("spec.a", object))
			}
			return all
		}}
	}
	catalogue := operand.Catalogue{uses("a", "x", "x", "y"), uses("b", "y"), uses("c", "x")}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}
	x := operand.Reference{Kind: operand.ConfigMap, Name: "x"}
	y := operand.Reference{Kind: operand.ConfigMap, Name: "y"}
	g.Expect(catalogue.Uses(in)).To(Equal([]operand.Reference{x, y}))
	g.Expect(catalogue.UsersOf(in, x)).To(Equal([]operand.Name{"a", "c"}))
	g.Expect(catalogue.UsersOf(in, y)).To(Equal([]operand.Name{"a", "b"}))

	var env operand.Env
	env.AddIf(false, "A", "1")
	env.AddIf(true, "B", "2")
	g.Expect(env).To(Equal(operand.Env{{Name: "B", Value: "2"}}))
}
