package specgen_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
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
	"github.com/clusterpolicy/gpu-operator/internal/schemacheck"
	"github.com/clusterpolicy/gpu-operator/internal/undecodable"
)

// The number of objects: a sample, and with TEST_FULL=1 all. DECODE_SEED=n continues from another seed.
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
// the schema and the rules admit can be decoded, and the operator's own check finds nothing in it.
func TestWhatIsAdmittedIsDecoded(t *testing.T) {
	count, seed := sampledObjects, uint64(1) // A sample is the same each time.
	if os.Getenv("TEST_FULL") != "" {
		count, seed = allObjects, uint64(time.Now().UnixNano())
	}
	for name, set := range map[string]func(string) error{
		"DECODE_SEED":    func(text string) (err error) { seed, err = strconv.ParseUint(text, 10, 64); return err },
		"DECODE_OBJECTS": func(text string) (err error) { count, err = strconv.Atoi(text); return err },
	} {
		if text := os.Getenv(name); text != "" {
			if err := set(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d objects, DECODE_SEED=%d", count, seed)
	all := subjects(t)
	const workers = 4
	var admitted, refused, slow, slowest atomic.Int64
	for worker := range uint64(workers) {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			d := decoding{t: t, kinds: ownKinds(t), admitted: &admitted, refused: &refused, slow: &slow, slowest: &slowest}
			dice := rand.New(rand.NewPCG(seed, worker)) //nolint:gosec // Repeatable by its seed.
			for range count / workers {
				d.try(all[dice.IntN(len(all))], dice)
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d admitted and decoded, %d in more than 10 ms, the slowest in %v; %d refused", admitted.Load(),
			slow.Load(), time.Duration(slowest.Load()), refused.Load())
		if least := int64(count) / 5; admitted.Load() < least || refused.Load() < least {
			t.Errorf("want at least %d admitted and as many refused: the objects test nothing", least)
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

type decoding struct {
	t                                *testing.T
	kinds                            undecodable.Kinds
	admitted, refused, slow, slowest *atomic.Int64
}

// try makes an object, and decodes it if it is admitted.
func (d decoding) try(s subject, dice *rand.Rand) {
	d.t.Helper()
	fields := map[string]any{}
	for range 1 + dice.IntN(4) {
		one := s.leaves[dice.IntN(len(s.leaves))]
		one.put(fields, one.value(dice))
	}
	complete(s.schema, fields)
	object := map[string]any{
		"apiVersion": s.definition.Kind.GroupVersion().String(), "kind": s.definition.Kind.Kind,
		"metadata": map[string]any{"name": "a"}, "spec": fields,
	}
	text, err := json.Marshal(object)
	if err != nil {
		d.t.Fatal(err)
	}
	received := &unstructured.Unstructured{}
	if received.UnmarshalJSON(text) != nil || len(s.checker.Check(context.Background(), received).Refused) > 0 {
		d.refused.Add(1)
		return
	}
	d.admitted.Add(1)
	// As the API server encodes it.
	content, _ := received.Object["spec"]
	delete(received.Object, "spec")
	received.Object[s.part] = content
	stored, err := received.MarshalJSON()
	if err != nil {
		d.t.Fatal(err)
	}
	d.decode(s, stored)
}

func (d decoding) decode(s subject, stored []byte) {
	d.t.Helper()
	begin, decoded := time.Now(), reflect.New(goTypes[s.definition.Name]).Interface()
	watchdog := time.AfterFunc(decodeLimit, func() { panic(fmt.Sprintf("decoding does not end: %s", stored)) })
	err := kjson.UnmarshalCaseSensitivePreserveInts(stored, decoded)
	watchdog.Stop()
	if err != nil {
		d.t.Errorf("admitted, and cannot be decoded: %v: %s", err, stored)
	}
	took := int64(time.Since(begin))
	if took > int64(10*time.Millisecond) {
		d.slow.Add(1)
	}
	for {
		slowest := d.slowest.Load()
		if took <= slowest || d.slowest.CompareAndSwap(slowest, took) {
			break
		}
	}
	if sanitized, problems, err := d.kinds.Sanitize(stored); err != nil || string(sanitized) != string(stored) {
		d.t.Errorf("admitted, and the operator finds %v, %v: %s", problems, err, stored)
	}
}
