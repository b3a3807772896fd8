package specgen_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/errors"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// The number of objects: a sample, and with TEST_FULL=1 all.
const (
	sampledObjects = 4_000
	allObjects     = 1_000_000
	// decodeLimit is far above what decoding takes, and far below what the decoder of a bad quantity takes.
	decodeLimit = 30 * time.Second
)

// subject is a part of a kind, the spec or the status, with a checker that takes it as the spec.
type subject struct {
	definition crd.Definition
	part       string
	leaves     []leaf
	schema     *apiextensionsv1.JSONSchemaProps
	checker    *schemacheck.Checker
}

func subjects(t *testing.T) []subject {
	t.Helper()
	g := NewWithT(t)
	var found []subject
	for _, definition := range crd.All() {
		for _, part := range []string{"spec", "status"} {
			object := &apiextensionsv1.CustomResourceDefinition{}
			g.Expect(yaml.UnmarshalStrict(definition.Text, object)).To(Succeed())
			whole := object.Spec.Versions[0].Schema.OpenAPIV3Schema
			schema := whole.Properties[part]
			schema.Default = nil
			whole.Properties["spec"] = schema
			text, err := yaml.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			checker, err := schemacheck.New(text, definition.Kind.Version)
			g.Expect(err).NotTo(HaveOccurred())
			found = append(found, subject{definition, part, leavesOf(nil, &schema), &schema, checker})
		}
	}
	return found
}

// TestWhatIsAdmittedIsDecoded: random objects with values at the edges of what their fields take, and beyond. Each that
// the schema and the rules admit can be decoded in milliseconds, and the operator's own check finds nothing in it.
//
// The schema and the rules take nearly all of the time, and do not matter for an object that is decoded. They are asked
// about all others, and about a part of the rest, so that the test fails if it makes no objects of both sorts.
func TestWhatIsAdmittedIsDecoded(t *testing.T) {
	count := sampledObjects
	if os.Getenv("TEST_FULL") != "" {
		count = allObjects
	}
	if text := os.Getenv("DECODE_OBJECTS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d objects", count)
	all := subjects(t)
	const workers = 4
	var total tally
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			d := decoding{t: t, kinds: ownKinds(t), tally: &total}
			dice := chance.Of(t, fmt.Sprint("worker ", worker))
			for i := range count / workers {
				// A small run asks about each object.
				d.try(all[dice.IntN(len(all))], dice, count <= sampledObjects || i%askedEvery == 0)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d decoded, the slowest in %v; %d not or not at once, of which the schema refuses %d; asked about %d, of "+
			"which %d are admitted", total.decoded.Load(), time.Duration(total.slowest.Load()), total.suspect.Load(),
			total.refusedSuspects.Load(), total.asked.Load(), total.admitted.Load())
		least := total.asked.Load() / 5
		if admitted := total.admitted.Load(); admitted < least || total.asked.Load()-admitted < least {
			t.Errorf("want at least %d admitted and as many refused: the objects test nothing", least)
		}
		if total.suspect.Load() < int64(count)/100 {
			t.Errorf("%d objects are not decoded: they test nothing", total.suspect.Load())
		}
	})
}

func ownKinds(t *testing.T) undecodable.Kinds {
	t.Helper()
	scheme := runtime.NewScheme()
	g := NewWithT(t)
	g.Expect(errors.NewAggregate([]error{v1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)})).To(Succeed())
	return undecodable.KindsOf(scheme, v1.GroupVersion.Group)
}

// askedEvery is the part of the objects of a large run about which the schema and the rules are asked anyway.
const askedEvery = 50

// tally counts objects. Suspects are not decoded, not at once, or not as they are.
type tally struct {
	decoded, suspect, refusedSuspects, asked, admitted, slowest atomic.Int64
}

type decoding struct {
	t     *testing.T
	kinds undecodable.Kinds
	*tally
}

// longExponent is in each quantity whose decoding takes too long: such an object is not decoded unless it is admitted.
var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// try makes an object, decodes it, and asks whether it is admitted if that fails, or if asked.
func (d decoding) try(s subject, dice *rand.Rand, ask bool) {
	d.t.Helper()
	received := d.object(s, dice)
	if received == nil {
		return
	}
	moved := maps.Clone(received.Object)
	delete(moved, "spec")
	moved[s.part] = received.Object["spec"]
	// As the API server encodes it.
	stored, err := (&unstructured.Unstructured{Object: moved}).MarshalJSON()
	if err != nil {
		d.t.Fatal(err)
	}
	admits := sync.OnceValue(func() bool { return len(s.checker.Check(context.Background(), received).Refused) == 0 })
	if ask {
		d.asked.Add(1)
		if admits() {
			d.admitted.Add(1)
		}
	}
	problem := "has a long exponent"
	if !longExponent.Match(stored) || admits() {
		problem = d.decode(s, stored)
	}
	if problem == "" {
		d.decoded.Add(1)
		return
	}
	d.suspect.Add(1)
	if admits() {
		d.t.Errorf("admitted, and %s: %s", problem, stored)
		return
	}
	d.refusedSuspects.Add(1)
}

// object makes an object as the API server receives it, with the part as its spec; nil if it is none.
func (d decoding) object(s subject, dice *rand.Rand) *unstructured.Unstructured {
	d.t.Helper()
	fields := map[string]any{}
	for range 1 + dice.IntN(4) {
		one := s.leaves[dice.IntN(len(s.leaves))]
		one.put(fields, one.value(dice))
	}
	complete(s.schema, fields)
	text, err := json.Marshal(map[string]any{
		"apiVersion": s.definition.Kind.GroupVersion().String(), "kind": s.definition.Kind.Kind,
		"metadata": map[string]any{"name": "a"}, "spec": fields,
	})
	if err != nil {
		d.t.Fatal(err)
	}
	received := &unstructured.Unstructured{}
	if received.UnmarshalJSON(text) != nil {
		return nil
	}
	return received
}

// decode returns what is wrong with an object; empty if it is decoded in milliseconds, as it is.
func (d decoding) decode(s subject, stored []byte) (problem string) {
	begin, decoded := time.Now(), reflect.New(goTypes[s.definition.Name]).Interface()
	watchdog := time.AfterFunc(decodeLimit, func() { panic(fmt.Sprintf("decoding does not end: %s", stored)) })
	err := kjson.UnmarshalCaseSensitivePreserveInts(stored, decoded)
	watchdog.Stop()
	if err != nil {
		return "cannot be decoded: " + err.Error()
	}
	took := int64(time.Since(begin))
	for {
		slowest := d.slowest.Load()
		if took <= slowest || d.slowest.CompareAndSwap(slowest, took) {
			break
		}
	}
	if sanitized, problems, err := d.kinds.Sanitize(stored); err != nil || string(sanitized) != string(stored) {
		return fmt.Sprintf("the operator finds %v, %v", problems, err)
	}
	return ""
}
