package specgen_test

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
)

// The Go types of the kinds, whose schemas are generated from them.
var goTypes = map[string]reflect.Type{
	crd.Name: reflect.TypeFor[v1.ClusterPolicy](), crd.NVIDIADriverName: reflect.TypeFor[v1alpha1.NVIDIADriver](),
}

// bounds visits the leaves of a Go type together with their schemas.
type bounds struct {
	t       *testing.T
	checked map[string]int
}

// Every number, number or text, quantity, duration, time and port has bounds in the schema within which it can be
// decoded: also those in types of Kubernetes, whose schemas are generated without them.
func TestEveryValueThatIsParsedIsBounded(t *testing.T) {
	b := bounds{t: t, checked: map[string]int{}}
	for _, definition := range crd.All() {
		object := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(definition.Text, object); err != nil {
			t.Fatal(err)
		}
		schema := object.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			field, _ := goTypes[definition.Name].FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, part) })
			below := schema.Properties[part]
			b.visit(field.Type, &below, definition.Kind.Kind+"."+part)
		}
	}
	t.Logf("bounded leaves: %v", b.checked)
	for class, least := range map[string]int{
		"int32": 60, "int64": 20, "IntOrString": 6, "Quantity": 60, "Duration": 1, "Time": 4, "port": 1,
		"text of a duration": 12,
	} {
		if b.checked[class] < least {
			t.Errorf("%d leaves of class %s, want at least %d: the walk does not reach them", b.checked[class], class, least)
		}
	}
}

func (b *bounds) visit(of reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if class, problem := check(of, schema, path); class != "" {
		b.checked[class]++
		if problem != "" {
			b.t.Errorf("%s, a %s, %s", path, class, problem)
		}
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		b.visitFields(of, schema, path)
	case reflect.Map:
		b.visit(of.Elem(), schema.AdditionalProperties.Schema, path+"{}")
	case reflect.Slice:
		b.visit(of.Elem(), schema.Items.Schema, path+"[]")
	}
}

func (b *bounds) visitFields(of reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			b.visitFields(field.Type, schema, path)
			continue
		}
		if below, has := schema.Properties[name]; has {
			b.visit(field.Type, &below, path+"."+name)
		} else {
			b.t.Errorf("%s.%s is not in the schema", path, name)
		}
	}
}

// check returns the class of a leaf that is parsed, empty for others, and what is missing.
func check(of reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) (class, problem string) {
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		ones := strings.Repeat("1", 30)
		return "Quantity", refusesAll(schema, "1e-99999999999", "1e100", "1e99", "1e19", ones, "1."+ones)
	case reflect.TypeFor[intstr.IntOrString]():
		return "IntOrString", boundedBy(schema, math.MinInt32, math.MaxInt32)
	case reflect.TypeFor[metav1.Duration]():
		return "Duration", limitsDuration(schema)
	case reflect.TypeFor[metav1.Time]():
		return "Time", refusesAll(schema, "2026-11-27t10:00:00Z", "2026-11-27T10:00:00z", "2026-11-27T10:00:00+99:00")
	}
	name := strings.ToLower(path[strings.LastIndex(path, ".")+1:])
	switch of.Kind() {
	case reflect.Int32, reflect.Int64, reflect.Int:
		if strings.HasSuffix(name, "port") {
			return "port", boundedBy(schema, 0, math.MaxUint16)
		}
		return of.Kind().String(), ofFormat(schema, of.Kind().String())
	case reflect.String:
		if strings.Contains(path, ".deadlines.") || name == "interval" || name == "scrapetimeout" {
			return "text of a duration", limitsDuration(schema)
		}
	case reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return of.Kind().String(), "is a kind of number that this test does not know"
	}
	return "", ""
}

// refusesAll reports which of the texts the schema does not refuse by its pattern.
func refusesAll(schema *apiextensionsv1.JSONSchemaProps, texts ...string) string {
	for _, text := range texts {
		if schema.Pattern == "" || regexp.MustCompile(schema.Pattern).MatchString(text) {
			return "is not refused by its pattern: " + text
		}
	}
	return ""
}

func boundedBy(schema *apiextensionsv1.JSONSchemaProps, least, most float64) string {
	if schema.Minimum == nil || *schema.Minimum < least || schema.Maximum == nil || *schema.Maximum > most {
		return fmt.Sprintf("is not bounded by %.0f and %.0f", least, most)
	}
	return ""
}

// ofFormat: the API server refuses numbers beyond the format, see TestTheFormatBoundsNumbers.
func ofFormat(schema *apiextensionsv1.JSONSchemaProps, format string) string {
	if schema.Type != "integer" || schema.Format != format {
		return "has another format: " + schema.Format
	}
	return ""
}

// The API server refuses numbers that do not fit into the format of their schema.
func TestTheFormatBoundsNumbers(t *testing.T) {
	g := NewWithT(t)
	checker, err := schemacheck.New(crd.ClusterPolicy, v1.GroupVersion.Version)
	g.Expect(err).NotTo(HaveOccurred())
	number := func(field string) string { return `{"driver":{"startupProbe":{"failureThreshold":` + field + `}}}` }
	tolerated := func(seconds string) string {
		return `{"daemonsets":{"tolerations":[{"operator":"Exists","effect":"NoExecute","tolerationSeconds":` + seconds +
			`}]}}`
	}
	for spec, refused := range map[string]bool{
		number("2147483647"): false, number("2147483648"): true, number("1e300"): true, number(`"5"`): true,
		tolerated("9007199254740991"): false, tolerated("9223372036854775808"): true, tolerated("1e300"): true,
	} {
		object := &unstructured.Unstructured{}
		g.Expect(object.UnmarshalJSON([]byte(
			`{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"a"},"spec":` + spec + `}`))).To(Succeed())
		if found := checker.Check(t.Context(), object).Refused; refused {
			g.Expect(found).NotTo(BeEmpty(), spec)
		} else {
			g.Expect(found).To(BeEmpty(), spec)
		}
	}
}

// limitsDuration requires a bound of the length, and a rule that compares the duration or bounds its digits.
func limitsDuration(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.MaxLength == nil || *schema.MaxLength > 64 {
		return "has no short maxLength"
	}
	for _, rule := range schema.XValidations {
		if strings.Contains(rule.Rule, "duration('168h')") || !strings.Contains(rule.Rule, "[0-9]+") {
			return ""
		}
	}
	return "has no rule that bounds it"
}
