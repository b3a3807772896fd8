package undecodable_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

func kinds(t *testing.T) undecodable.Kinds {
	t.Helper()
	scheme := runtime.NewScheme()
	g := NewWithT(t)
	g.Expect(v1.AddToScheme(scheme)).To(Succeed())
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	return undecodable.KindsOf(scheme, v1.GroupVersion.Group)
}

func policy(rest string) []byte {
	text, err := yaml.YAMLToJSON([]byte("apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: a}\n" + rest))
	if err != nil {
		panic(err)
	}
	return text
}

// Each field that Go cannot decode, or not in time, is named and removed, and nothing else.
func TestWhatCannotBeDecodedIsRemoved(t *testing.T) {
	const (
		int32s   = "a whole number from -2147483648 to 2147483647"
		quantity = "a quantity of at most 20 digits on each side of the point and an exponent of at most 18"
	)
	tests := map[string]struct {
		spec, kept string
		want       []string
	}{
		"a number of 64 bits instead of a number or a text": {
			spec: `{driver: {enabled: true, upgradePolicy: {maxUnavailable: 99999999999, autoUpgrade: true}}}`,
			kept: `{driver: {enabled: true, upgradePolicy: {autoUpgrade: true}}}`,
			want: []string{"spec.driver.upgradePolicy.maxUnavailable is 99999999999, which is not " + int32s + " or a text"},
		},
		"a number of 64 bits": {
			spec: `{dcgm: {hostPort: 3000000000}}`, kept: `{dcgm: {}}`,
			want: []string{"spec.dcgm.hostPort is 3000000000, which is not " + int32s},
		},
		"the least number that does not fit": {
			spec: `{daemonsets: {rollingUpdate: {maxUnavailable: 2147483648}}}`, kept: `{daemonsets: {rollingUpdate: {}}}`,
			want: []string{"spec.daemonsets.rollingUpdate.maxUnavailable is 2147483648, which is not " + int32s + " or a text"},
		},
		"a quantity without end, below a map": {
			spec: `{toolkit: {resources: {limits: {cpu: "1", memory: "1e-99999999999"}}}}`,
			kept: `{toolkit: {resources: {limits: {cpu: "1"}}}}`,
			want: []string{`spec.toolkit.resources.limits[memory] is "1e-99999999999", which is not ` + quantity},
		},
		"a quantity of more digits than are decoded": {
			spec: `{gfd: {resources: {limits: {cpu: "1", memory: "111111111111111111111"}, requests: {memory: "1e100"}}}}`,
			kept: `{gfd: {resources: {limits: {cpu: "1"}, requests: {}}}}`,
			want: []string{
				`spec.gfd.resources.limits[memory] is "111111111111111111111", which is not ` + quantity,
				`spec.gfd.resources.requests[memory] is "1e100", which is not ` + quantity,
			},
		},
		"a text that is no quantity": {
			spec: `{toolkit: {resources: {requests: {cpu: many}}}}`, kept: `{toolkit: {resources: {requests: {}}}}`,
			want: []string{`spec.toolkit.resources.requests[cpu] is "many", which is not ` + quantity},
		},
		"a duration that overflows": {
			spec: `{nodeDiscovery: {mode: own, gracePeriod: 99999999h}}`, kept: `{nodeDiscovery: {mode: own}}`,
			want: []string{`spec.nodeDiscovery.gracePeriod is "99999999h", which is not ` +
				"a duration such as 10m, of at most 292 years"},
		},
		"a text instead of a block": {
			spec: `{driver: x, gfd: {enabled: false}}`, kept: `{gfd: {enabled: false}}`,
			want: []string{`spec.driver is "x", which is not a block of fields`},
		},
		"an element of a list, with the list": {
			spec: `{driver: {args: [a, 5], image: b}}`, kept: `{driver: {image: b}}`,
			want: []string{"spec.driver.args[1] is 5, which is not a text"},
		},
		"a field of an element of a list": {
			spec: `{daemonsets: {tolerations: [{key: a, tolerationSeconds: no}]}}`,
			kept: `{daemonsets: {tolerations: [{key: a}]}}`,
			want: []string{"spec.daemonsets.tolerations[0].tolerationSeconds is false, which is not a whole number of 64 bits"},
		},
		"four fields": {
			spec: `{dcgm: {enabled: 1, image: 2, version: 3, repository: 4}}`, kept: `{dcgm: {}}`,
			want: []string{
				"spec.dcgm.enabled is 1, which is not true or false", "spec.dcgm.image is 2, which is not a text",
				"spec.dcgm.repository is 4, which is not a text", "spec.dcgm.version is 3, which is not a text",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, problems, err := kinds(t).Sanitize(policy("spec: " + test.spec))
			g.Expect(err).NotTo(HaveOccurred())
			var got []string
			for _, problem := range problems {
				got = append(got, problem.String())
			}
			slices.Sort(got)
			g.Expect(got).To(Equal(test.want))
			object := struct {
				Metadata struct{ Annotations map[string]string }
				Spec     json.RawMessage
			}{}
			g.Expect(json.Unmarshal(text, &object)).To(Succeed())
			kept, err := yaml.YAMLToJSON([]byte(test.kept))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(object.Spec).To(MatchJSON(kept))
			g.Expect(object.Metadata.Annotations["nvidia.com/gpu-operator.undecodable"]).
				To(ContainSubstring("is "), "the mark")
			g.Expect(kjson.UnmarshalCaseSensitivePreserveInts(text, &v1.ClusterPolicy{})).To(Succeed())
		})
	}
}

func TestWhatCanBeDecodedStaysAsItIs(t *testing.T) {
	g := NewWithT(t)
	for _, text := range [][]byte{
		policy("spec: {driver: {upgradePolicy: {maxUnavailable: 2147483647}}}"),
		policy("spec: {driver: {upgradePolicy: {maxUnavailable: 25%, maxParallelUpgrades: null}, resources: null}}"),
		policy("spec: {toolkit: {resources: {limits: {cpu: 1, memory: 1.5Gi, a/b: 1e18}}}}"),
		// The CRD of NVIDIA's operator admits these.
		policy("spec: {toolkit: {resources: {limits: {cpu: 1e19, memory: 1e99, a/b: 99999999999999999999E-99}}}}"),
		policy("spec: {nodeDiscovery: {gracePeriod: 10m}, unknown: 99999999999}"),
		policy("spec: null"),
		// An embedded struct has no name of its own, and the fields stay in the order of their author.
		policy(`spec: {driver: {"": 5}}`),
		[]byte(`{"kind": "ClusterPolicy", "apiVersion": "nvidia.com/v1", "spec": {}}`),
		[]byte(`{"apiVersion":"v1","kind":"Node","spec":5}`),
		[]byte(`{"apiVersion":"nvidia.com/v1","kind":"PartialObjectMetadata","spec":5}`),
	} {
		got, problems, err := kinds(t).Sanitize(text)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(problems).To(BeEmpty())
		g.Expect(string(got)).To(Equal(string(text)))
	}
}

// The status is written again, so that it is no problem of the spec.
func TestAStatusThatCannotBeDecodedIsDropped(t *testing.T) {
	g := NewWithT(t)
	text, problems, err := kinds(t).Sanitize(policy("status: {state: ready, nodeSummary: {total: 99999999999}}"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
	object := v1.ClusterPolicy{}
	g.Expect(json.Unmarshal(text, &object)).To(Succeed())
	g.Expect(object.Status.State).To(Equal(v1.StateReady))
	g.Expect(object.Annotations).To(BeEmpty())
}

// Whoever may write annotations of a policy must not make the operator stop.
func TestAForeignMarkIsRemoved(t *testing.T) {
	g := NewWithT(t)
	text, problems, err := kinds(t).Sanitize([]byte(`{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy",
		"metadata":{"name":"a","annotations":{"b":"c","nvidia.com/gpu-operator.undecodable":"x"}}}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
	object := v1.ClusterPolicy{}
	g.Expect(json.Unmarshal(text, &object)).To(Succeed())
	g.Expect(object.Annotations).To(Equal(map[string]string{"b": "c"}))
}

func TestTheErrorNamesObjectAndField(t *testing.T) {
	g := NewWithT(t)
	spec := "spec: {dcgm: {enabled: 1, image: 2, version: 3, repository: 4}}"
	g.Expect(kinds(t).Check(policy(spec))).To(MatchError(And(
		HavePrefix("ClusterPolicy a cannot be decoded: spec.dcgm."),
		ContainSubstring("; and 1 fields more; until it is corrected"))))
	g.Expect(kinds(t).Check(policy("spec: {dcgm: {enabled: 1, image: 2, version: 3}}"))).To(MatchError(And(
		HavePrefix("ClusterPolicy a cannot be decoded: spec.dcgm."), Not(ContainSubstring("fields more")))))
	g.Expect(kinds(t).Check(policy("spec: {dcgm: {enabled: true}}"))).To(Succeed())
}

// A value may fail as a whole, though each of its parts can be decoded: here a key is no number.
func TestACauseThatNoPartHasIsFound(t *testing.T) {
	type numbered struct {
		Spec map[int]string `json:"spec"`
	}
	g := NewWithT(t)
	of := undecodable.Kinds{{Group: "a", Version: "v1", Kind: "B"}: reflect.TypeFor[numbered]()}
	text, problems, err := of.Sanitize([]byte(`{"apiVersion":"a/v1","kind":"B","spec":{"x":"y"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(HaveExactElements(And(
		HaveField("Path", "spec"), HaveField("Cause", HavePrefix("cannot be decoded: json: cannot unmarshal")))))
	g.Expect(string(text)).NotTo(ContainSubstring(`"spec":`))
}

// The time for a policy with many fields that cannot be decoded is bounded.
func TestAnObjectOfManyBadFieldsTakesNoTime(t *testing.T) {
	g := NewWithT(t)
	var limits strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&limits, `"%s": "1e-99999999999", `, fmt.Sprint("a/", i))
	}
	begin := time.Now()
	_, problems, err := kinds(t).Sanitize(policy("spec: {toolkit: {resources: {limits: {" + limits.String() + "}}}}"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(HaveLen(10_000))
	// Without the check, the first one never ends.
	g.Expect(time.Since(begin)).To(BeNumerically("<", 30*time.Second))
}
