package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// common are the values that values.yaml lists first, in this order.
var common = []string{
	"operator.repository", "operator.image", "operator.version", "global.registry", "global.imagePullSecrets",
	"nfd.enabled", "driver.enabled", "driver.version", "driver.kernelModuleType", "driver.rdma.enabled",
	"driver.upgradePolicy.autoUpgrade", "toolkit.enabled", "devicePlugin.config.name", "mig.strategy",
	"migManager.config.name", "migManager.config.default", "dcgmExporter.serviceMonitor.enabled", "cdi.enabled",
	"daemonsets.tolerations",
}

// machines are the blocks for virtual machines alone, in this order.
var machines = []string{
	"sandboxWorkloads", "vfioManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "vgpuManager",
	"vgpuDeviceManager", "ccManager", "kataManager",
}

// once generates the files of the chart in the repository.
var once = sync.OnceValues(func() (map[string][]byte, error) { return generate(root, release{version: workingTree}) })

// generated returns the generated files of the chart in the repository.
func generated(g *WithT) map[string]string {
	files, err := once()
	g.Expect(err).NotTo(HaveOccurred())
	texts := map[string]string{}
	for name, content := range files {
		texts[name] = string(content)
	}
	return texts
}

// valuesOf parses values.yaml, strictly, so that a key may occur once; complete: with all comments enabled.
func valuesOf(g *WithT, text string, complete bool) object {
	if complete {
		_, blocks, found := strings.Cut(text, "\n\n")
		g.Expect(found).To(BeTrue())
		text = regexp.MustCompile(`(?m)^# `).ReplaceAllString(blocks, "")
	}
	values := object{}
	g.Expect(yaml.UnmarshalStrict([]byte(text), &values)).To(Succeed())
	return values
}

// at returns the value at a dotted path as JSON; empty if there is none.
func at(g *WithT, values object, path string) string {
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		values, _ = values[key].(object)
	}
	value, there := values[keys[len(keys)-1]]
	if !there {
		return ""
	}
	text, err := json.Marshal(value)
	g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// blocksOf returns the keys at the top of values.yaml, in the order of the file.
func blocksOf(text string) []string {
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^(?:# )?([A-Za-z][A-Za-z-]*):`).FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// The first lines of values.yaml list the values that most people set, a line for each, with the defaults that the
// blocks have. The chart sets those that are not commented out, and only these.
func TestValuesBeginWithThoseThatMostPeopleSet(t *testing.T) {
	g := NewWithT(t)
	text := generated(g)["values.yaml"]
	head, _, _ := strings.Cut(text, "\n\n")
	g.Expect(strings.Split(head, "\n")).To(And(
		ContainElement("# Values that most people set, by their paths, as for --set:"), HaveEach(HavePrefix("#")),
		HaveEach(WithTransform(func(line string) int { return len(line) }, BeNumerically("<=", 120)))))
	// Only the last default needs a second line.
	head = strings.ReplaceAll(head, "(default\n#"+strings.Repeat(" ", 40), "(default ")
	line := regexp.MustCompile(`(?m)^#   (\S+) +[A-Z].* \((default|the chart sets) (.*)\)$`)
	set, complete := valuesOf(g, text, false), valuesOf(g, text, true)
	var paths []string
	for _, match := range line.FindAllStringSubmatch(head, -1) {
		path, who, value := match[1], match[2], match[3]
		paths = append(paths, path)
		g.Expect(value).To(Equal(at(g, complete, path)), path)
		by := map[bool]string{true: "the chart sets", false: "default"}[at(g, set, path) != ""]
		g.Expect(who).To(Equal(by), path)
	}
	g.Expect(paths).To(Equal(common))
	g.Expect(set).To(Equal(object{
		"dcgmExporter": object{"serviceMonitor": object{"enabled": true, "interval": "15s", "scrapeTimeout": "10s"}},
		"driver":       object{"licensingConfig": object{"nlsEnabled": true}, "upgradePolicy": object{"autoUpgrade": true}},
		"mig":          object{"strategy": "single"},
	}))
}

// Every value has a line, and the README a row. Blocks with common values come first, and those for virtual machines
// last; within a block the common keys come first, then the others by name.
func TestTheOrderOfValues(t *testing.T) {
	g := NewWithT(t)
	files := generated(g)
	text, readme := files["values.yaml"], files["README.md"]
	v, err := newValues()
	g.Expect(err).NotTo(HaveOccurred())
	complete := valuesOf(g, text, true)
	g.Expect(complete).To(HaveLen(len(v.schema.Properties)))
	rows := 0
	for name, block := range v.schema.Properties {
		if block.leaf() {
			rows++
			g.Expect(readme).To(ContainSubstring("\n| `" + name + "` |"))
		}
		block.visitShown(name+".", func(path string, s *schema) {
			if s.leaf() {
				rows++
				g.Expect(at(g, complete, path)).NotTo(BeEmpty(), path)
				g.Expect(readme).To(ContainSubstring("\n| `"+path+"` |"), path)
			}
		})
	}
	g.Expect(rows).To(BeNumerically(">", 450))

	names := blocksOf(text)
	first := []string{
		"operator", "global", "nfd", "driver", "toolkit", "devicePlugin", "mig", "migManager", "dcgmExporter", "cdi",
		"daemonsets",
	}
	g.Expect(names[:len(first)]).To(Equal(first))
	g.Expect(names[len(names)-len(machines):]).To(Equal(machines))
	others := names[len(first) : len(names)-len(machines)]
	g.Expect(slices.IsSorted(others)).To(BeTrue(), "%v", others)
	g.Expect(names).To(HaveLen(len(complete)))
	g.Expect(regexp.MustCompile(`(?m)^### ([A-Za-z-]+)$`).FindAllString(readme[strings.Index(readme, "## Values"):], -1)).
		To(HaveExactElements(headings(names)))
	g.Expect(text).To(MatchRegexp(`(?s)\ndriver:\n.*?\n#   enabled: .*?\n#   version: .*?\n#   kernelModuleType: .*?` +
		`\n#   rdma:\n.*?\n  upgradePolicy:\n.*?\n    autoUpgrade: true\n.*?\n#     drain:\n.*?\n#   annotations: `))
}

// headings returns the headings of the README for these blocks.
func headings(names []string) []any {
	var all []any
	for _, name := range names {
		all = append(all, "### "+name)
	}
	return all
}

// A new block that only virtual machines use is last, too.
func TestBlocksWithoutEffectForContainersAreLast(t *testing.T) {
	g := NewWithT(t)
	v, err := newValues()
	g.Expect(err).NotTo(HaveOccurred())
	found := 0
	for path, instead := range v.fields.Without {
		if strings.Contains(instead, "virtual machines") && v.schema.Properties[path] != nil {
			found++
			g.Expect(machines).To(ContainElement(path))
		}
	}
	g.Expect(found).To(BeNumerically(">=", 6))
}

// An order that names what does not exist is refused, as it would leave out a line or repeat a block.
func TestWrongOrdersAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		order order
		want  string
	}{
		"no value": {
			order{Common: []commonValue{{Path: "driver.verison"}}}, "common has driver.verison, which is no value",
		},
		"a block":  {order{Common: []commonValue{{Path: "driver.rdma"}}}, "common has driver.rdma, which is no value"},
		"no block": {order{Machines: []string{"vms"}}, "machines has vms, which is no block"},
		"a common block": {
			order{Common: []commonValue{{Path: "ccManager.enabled"}}, Machines: []string{"ccManager"}},
			"machines has ccManager, and common has a value of it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			v, err := newValues()
			g.Expect(err).NotTo(HaveOccurred())
			v.order = test.order
			g.Expect(v.checkOrder()).To(MatchError(ContainSubstring(test.want)))
		})
	}
}

// The README of the chart has a row for each common value, with its default.
func TestTheREADMEHasTheCommonValues(t *testing.T) {
	g := NewWithT(t)
	readme := generated(g)["README.md"]
	g.Expect(readme).To(And(
		ContainSubstring("| `driver.enabled` | `true` | Set false if the nodes have a driver of their own |\n"),
		ContainSubstring("| `mig.strategy` | `\"single\"`, set by the chart | How MIG devices are advertised: ")))
	_, values, _ := strings.Cut(readme, "Most people set some of these:")
	table, _, _ := strings.Cut(values, "All values follow by block.")
	var paths []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `").FindAllStringSubmatch(table, -1) {
		paths = append(paths, match[1])
	}
	g.Expect(paths).To(Equal(common))
}

// Enumerations allow no other type. The chart accepts any value of a field that it ignores.
func TestTypesOfEnumerations(t *testing.T) {
	g := NewWithT(t)
	value := apiextensionsv1.JSONSchemaProps{Type: typeString, Enum: []apiextensionsv1.JSON{{Raw: []byte(`"on"`)}}}
	enumerated := fromDefinition(&apiextensionsv1.JSONSchemaProps{
		Type: typeObject, Properties: map[string]apiextensionsv1.JSONSchemaProps{"value": value},
	}).Properties["value"]
	g.Expect(enumerated.Type).To(Equal([]string{typeString, typeNull}))
	g.Expect(enumerated.Then.Enum).To(Equal([]string{"on"}))

	v, err := newValues()
	g.Expect(err).NotTo(HaveOccurred())
	v.fields.Ignored = []string{"mig.strategy"}
	g.Expect(v.markFields()).To(Succeed())
	ignored := v.schema.at("mig.strategy")
	g.Expect(ignored.Type).To(Equal([]string{typeString, typeInteger, typeNull}))
	g.Expect(ignored.If).To(BeNil())
	g.Expect(ignored.Then).To(BeNil())
}

// A list of texts has no null: Helm would print it as <nil>.
func TestEnumerationsHaveNoNull(t *testing.T) {
	g := NewWithT(t)
	schema := generated(g)["values.schema.json"]
	lists := regexp.MustCompile(`"enum": \[[^]]*\]`).FindAllString(schema, -1)
	g.Expect(len(lists)).To(BeNumerically(">", 20))
	g.Expect(lists).To(HaveEach(Not(ContainSubstring("null"))))
}
