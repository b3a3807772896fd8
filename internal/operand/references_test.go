package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// usesTwo is an operand with pods that need a ConfigMap with a key and a Secret.
var usesTwo = &operand.Operand{Placement: noPlacement, References: func(operand.Input) []operand.Use {
	return []operand.Use{
		operand.ConfigMapUse("spec.a.config", "settings", "file"),
		operand.SecretUse("spec.a.secret", "keys"),
		operand.ConfigMapUse("spec.a.unset", ""),
	}
}}

func noPlacement(operand.Input) operand.Placement { return operand.Placement{} }

// A missing priority class holds up the operands with pods, and no other, such as the RuntimeClasses.
func TestAnOperandWithoutPodsNeedsNoPriorityClass(t *testing.T) {
	in := operand.Input{
		Spec:     effective.Of(v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "missing"}}),
		Contents: map[operand.Reference]operand.Content{},
	}
	if got := in.CheckReferences(&operand.Operand{}); got != operand.Accept() {
		t.Errorf("without pods: %+v", got)
	}
	if got := in.CheckReferences(&operand.Operand{Placement: noPlacement}); got.Choice != operand.Refused {
		t.Errorf("with pods: %+v", got)
	}
}

// A key that several operands need of an object is one file: two mounts of it would be refused.
func TestAssumedObjectsHaveEachKeyOnce(t *testing.T) {
	other := *usesTwo
	catalogue := operand.Catalogue{*usesTwo, other}
	contents := catalogue.Assume(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}, nil)
	keys := contents[operand.Reference{Kind: operand.ConfigMap, Name: "settings"}].Keys
	if len(keys) != 1 || keys[0] != "file" {
		t.Errorf("got %v", keys)
	}
}

func TestCheckReferences(t *testing.T) {
	settings, secret := operand.Reference{
		Kind: operand.ConfigMap,
		Name: "settings",
	}, operand.Reference{
		Kind: operand.Secret,
		Name: "keys",
	}
	both := map[operand.Reference]operand.Content{settings: {Keys: []string{"file"}}, secret: {}}
	important := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "important"}}
	tests := map[string]struct {
		spec     v1.ClusterPolicySpec
		contents map[operand.Reference]operand.Content
		want     string
	}{
		"contents not read": {},
		"all exist":         {contents: both},
		"an object is missing": {
			contents: map[operand.Reference]operand.Content{settings: {Keys: []string{"file"}}},
			want:     "spec.a.secret: there is no Secret keys in namespace gpus: create it",
		},
		"layouts that cannot be read, of an operand that has none": {
			contents: map[operand.Reference]operand.Content{
				settings: {Keys: []string{"file"}, LayoutsProblem: "has no layouts"}, secret: {},
			},
		},
		"a key is missing": {
			contents: map[operand.Reference]operand.Content{settings: {Keys: []string{"other"}}, secret: {}},
			want:     "spec.a.config: ConfigMap settings in namespace gpus has no key file: add it",
		},
		"a missing priority class": {
			spec:     important,
			contents: both,
			want:     "spec.daemonsets.priorityClassName: there is no PriorityClass important: create it",
		},
		"a built-in priority class": {
			spec: v1.ClusterPolicySpec{
				DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "system-cluster-critical"},
			}, contents: both,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := operand.Input{
				Spec:      effective.Of(test.spec),
				Namespace: "gpus",
				Contents:  test.contents,
			}.CheckReferences(
				usesTwo,
			)
			want := operand.Accept()
			if test.want != "" {
				want = operand.Refuse(v1.ReasonReferenceMissing, test.want)
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Without Contents every object counts as existing.
func TestExists(t *testing.T) {
	fence := operand.Reference{Kind: operand.ValidatingAdmissionPolicyBinding, Name: "fence"}
	other := operand.Reference{Kind: operand.ConfigMap, Name: "fence"}
	tests := map[string]struct {
		contents map[operand.Reference]operand.Content
		want     bool
	}{
		"contents not read":         {want: true},
		"it exists":                 {contents: map[operand.Reference]operand.Content{fence: {}}, want: true},
		"no object exists":          {contents: map[operand.Reference]operand.Content{}},
		"another kind of that name": {contents: map[operand.Reference]operand.Content{other: {}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (operand.Input{Contents: test.contents}).Exists(fence); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// Cluster-scoped objects have no data, so they make no pods outdated, and their message has no namespace.
func TestReferencesInNoNamespace(t *testing.T) {
	fence := operand.Reference{Kind: operand.ValidatingAdmissionPolicyBinding, Name: "fence"}
	fenced := &operand.Operand{References: func(operand.Input) []operand.Use {
		return []operand.Use{{Field: "spec.a.mode", Reference: fence}}
	}}
	in := operand.Input{
		Spec:      effective.Of(v1.ClusterPolicySpec{}),
		Namespace: "gpus",
		Contents:  map[operand.Reference]operand.Content{fence: {Digest: "1"}},
	}
	if got := in.ContentDigest(fenced); got != "" {
		t.Errorf("got digest %q of an object without data", got)
	}
	in.Contents = map[operand.Reference]operand.Content{}
	want := operand.Refuse(
		v1.ReasonReferenceMissing,
		"spec.a.mode: there is no ValidatingAdmissionPolicyBinding fence: create it",
	)
	if got := in.CheckReferences(fenced); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestContentDigest(t *testing.T) {
	digest := func(contents map[operand.Reference]operand.Content) string {
		return operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{}), Contents: contents}.ContentDigest(usesTwo)
	}
	settings, other := operand.Reference{
		Kind: operand.ConfigMap,
		Name: "settings",
	}, operand.Reference{
		Kind: operand.Secret,
		Name: "settings",
	}
	first := digest(map[operand.Reference]operand.Content{settings: {Digest: "1"}})
	switch {
	case digest(nil) != "":
		t.Error("a digest without contents")
	case first == "" || first == digest(map[operand.Reference]operand.Content{settings: {Digest: "2"}}):
		t.Error("other data have the same digest")
	case first != digest(map[operand.Reference]operand.Content{settings: {Digest: "1"}, other: {Digest: "3"}}):
		t.Error("an unused object changes the digest")
	}
}

// Layouts that the MIG manager cannot read are refused, so that they do not replace layouts that work.
func TestLayoutsThatCannotBeRead(t *testing.T) {
	partitioner := operand.Operand{References: func(operand.Input) []operand.Use {
		use := operand.ConfigMapUse("spec.migManager.config.name", "layouts", "config.yaml")
		use.Partitions = true
		return []operand.Use{use}
	}}
	layouts := operand.Reference{Kind: operand.ConfigMap, Name: "layouts"}
	in := operand.Input{
		Spec: effective.Of(v1.ClusterPolicySpec{}), Namespace: "gpus",
		Contents: map[operand.Reference]operand.Content{
			layouts: {Keys: []string{"config.yaml"}, LayoutsProblem: "cannot be read: line 2"},
		},
	}
	got := in.CheckReferences(&partitioner)
	const want = "spec.migManager.config.name: ConfigMap layouts, key config.yaml, cannot be read: line 2"
	if got.Choice != operand.Refused || got.Reason != "MIGLayoutsInvalid" || got.Message != want {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// Data that running pods read again do not make them outdated.
func TestContentDigestWithoutLiveKeys(t *testing.T) {
	settings := operand.Reference{Kind: operand.ConfigMap, Name: "settings"}
	reader := func(change func(*operand.Use)) *operand.Operand {
		return &operand.Operand{References: func(operand.Input) []operand.Use {
			use := operand.ConfigMapUse("spec.a.config", "settings")
			change(&use)
			return []operand.Use{use}
		}}
	}
	live := reader(func(u *operand.Use) { u.LiveKeys = []string{"live"} })
	keys := func(live, other string) operand.Content {
		return operand.Content{
			Digest: live + other, Keys: []string{"live", "other"}, KeyDigests: map[string]string{"live": live, "other": other},
		}
	}
	const without, whole = "cc8ab7b5fd749e2a", "07c1908e193307d2"
	for name, test := range map[string]struct {
		o       *operand.Operand
		content operand.Content
		want    string
	}{
		"live key":               {live, keys("1", "1"), without},
		"a live key changes":     {live, keys("2", "1"), without},
		"another key changes":    {live, keys("1", "2"), "7bb973388d7ec6c9"},
		"unknown keys":           {live, operand.Content{Digest: "11"}, whole},
		"no live key":            {reader(func(*operand.Use) {}), keys("1", "1"), whole},
		"optional":               {reader(func(u *operand.Use) { u.Optional = true }), keys("1", "1"), ""},
		"a plugin configuration": {reader(func(u *operand.Use) { u.Configures = true }), keys("1", "1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{
				Spec:     effective.Of(v1.ClusterPolicySpec{}),
				Contents: map[operand.Reference]operand.Content{settings: test.content},
			}
			if got := in.ContentDigest(test.o); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestReadsPluginConfig(t *testing.T) {
	configures := operand.Operand{References: func(operand.Input) []operand.Use {
		return []operand.Use{{Field: "spec.a"}, {Field: "spec.b", Configures: true}}
	}}
	for name, test := range map[string]struct {
		o    *operand.Operand
		want bool
	}{
		"no object": {o: &operand.Operand{}}, "other objects": {o: usesTwo}, "a configuration": {o: &configures, want: true},
	} {
		if got := test.o.ReadsPluginConfig(operand.Input{}); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
