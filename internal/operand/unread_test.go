package operand_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Keys that none of the operands reads are named, unless one of them reads every key.
func TestUnreadKeys(t *testing.T) {
	reads := func(uses ...operand.Use) *operand.Operand {
		return &operand.Operand{References: func(operand.Input) []operand.Use { return uses }}
	}
	configMap := operand.Reference{Kind: operand.ConfigMap, Name: "c"}
	in := operand.Input{Contents: map[operand.Reference]operand.Content{
		configMap:                                 {Keys: []string{"a", "b", "misspelt"}},
		{Kind: operand.Secret, Name: "s"}:         {Keys: []string{"a"}},
		{Kind: operand.ConfigMap, Name: "unread"}: {Keys: []string{"x"}, Assumed: true},
	}}
	optional := operand.SecretUse("spec.s", "s", "b")
	optional.MayRead = []string{"a"}
	noted := operand.ConfigMapUse("spec.c", "c", "a")
	noted.Noted = []string{"b"}
	configures := operand.ConfigMapUse("spec.c", "c", "a")
	configures.Configures = true
	for name, test := range map[string]struct {
		operands []*operand.Operand
		want     []string
	}{
		"one": {
			operands: []*operand.Operand{reads(operand.ConfigMapUse("spec.c", "c", "a"))},
			want:     []string{"spec.c: ConfigMap c has the keys b, misspelt, which nothing reads: use a, or remove them"},
		},
		"two": {
			operands: []*operand.Operand{
				reads(operand.ConfigMapUse("spec.c", "c", "b")), reads(operand.ConfigMapUse("spec.d", "c", "a")),
			},
			want: []string{"spec.c: ConfigMap c has the keys misspelt, which nothing reads: use a, b, or remove them"},
		},
		"one with a note of its own": {
			operands: []*operand.Operand{reads(noted)},
			want:     []string{"spec.c: ConfigMap c has the keys misspelt, which nothing reads: use a, or remove them"},
		},
		"every key": {operands: []*operand.Operand{
			reads(operand.ConfigMapUse("spec.c", "c", "a")), reads(operand.ConfigMapUse("spec.d", "c")),
		}},
		"by labels of nodes": {operands: []*operand.Operand{reads(configures)}},
		"optional":           {operands: []*operand.Operand{reads(optional)}},
		"not read yet":       {operands: []*operand.Operand{reads(operand.ConfigMapUse("spec.c", "unread", "a"))}},
		"missing":            {operands: []*operand.Operand{reads(operand.ConfigMapUse("spec.c", "none", "a"))}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, in.UnreadKeys(test.operands)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFileNotes(t *testing.T) {
	use := operand.ConfigMapUse("spec.c", "c")
	in := operand.Input{Contents: map[operand.Reference]operand.Content{
		use.Reference: {FileProblems: map[string][]string{"a": {"line 1 is empty", "line 2 is empty"}, "b": {"is no file"}}},
	}}
	want := []string{"spec.c: ConfigMap c, key a, line 1 is empty", "spec.c: ConfigMap c, key a, line 2 is empty"}
	if diff := cmp.Diff(want, in.FileNotes(use, "a", "c")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
