package configfile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/policy/configfile"
)

// The names of layouts are found wherever YAML can have them.
func TestMIGLayoutNames(t *testing.T) {
	for name, test := range map[string]struct {
		content, problem string
		want             []string
	}{
		"plain":            {content: "mig-configs: {b: [], a: []}", want: []string{"a", "b"}},
		"names as numbers": {content: "mig-configs: {1: [], \"2\": []}", want: []string{"1", "2"}},
		"a name twice":     {content: "mig-configs: {a: [], a: []}", want: []string{"a"}},
		"an alias":         {content: "x: &x {a: []}\nmig-configs: *x", want: []string{"a"}},
		"merged":           {content: "x: &x {a: []}\nmig-configs: {<<: *x, b: []}", want: []string{"a", "b"}},
		"merged lists": {
			content: "x: &x {a: []}\ny: &y {c: []}\nmig-configs: {<<: [*x, *y], b: []}", want: []string{"a", "b", "c"},
		},
		"merged at the root": {content: "x: &x {mig-configs: {a: []}}\n<<: *x", want: []string{"a"}},
		"merged into itself": {content: "mig-configs: &x {a: [], <<: *x}", want: []string{"a"}},
		"JSON":               {content: `{"mig-configs":{"a":[]}}`, want: []string{"a"}},
		"null":               {content: "mig-configs:", problem: "has no layouts"},
		"empty":              {problem: "has no layouts"},
		"only a comment":     {content: "# nothing", problem: "has no layouts"},
		"a list":             {content: "mig-configs: [a]", problem: "cannot be read: mig-configs must be a mapping"},
		"a text":             {content: "mig-configs", problem: "has no layouts"},
		"no YAML":            {content: "a: b: c", problem: "cannot be read: "},
		"no such anchor":     {content: "mig-configs: *x", problem: "cannot be read: "},
		"too deep":           {content: strings.Repeat("[", 20_000), problem: "cannot be read: "},
	} {
		got, problem := configfile.MIGLayoutNames(test.content)
		if !slices.Equal(got, test.want) || (problem == "") != (test.problem == "") ||
			!strings.HasPrefix(problem, test.problem) {
			t.Errorf("%s: %v, %q", name, got, problem)
		}
	}
}
