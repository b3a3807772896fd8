package specgen_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// FuzzSpec plans and renders random specs, also with values that the API server would reject. No spec causes a panic,
// and rendered objects decode strictly (render itself checks that).
func FuzzSpec(f *testing.F) {
	all, err := specgen.Fields()
	if err != nil {
		f.Fatal(err)
	}
	for seed, extra := range []string{
		`{}`, `{"driver":{"image":"a@b:c/d","version":"sha256:"}}`, `{"daemonsets":{"rollingUpdate":{"maxUnavailable":"%"}}}`,
		`{"toolkit":{"env":[{"name":"RUNTIME_CONFIG"}]}}`, `{"hostPaths":{"rootFS":"..","kubeletRootDir":"//"}}`,
		`{"driver":{"usePrecompiled":true},"devicePlugin":{"config":{"name":"a","default":"b"}}}`,
		`{"dcgmExporter":{"env":[{"name":"DCGM_EXPORTER_LISTEN","value":":"}]}}`, `{"global":{"registry":":/@"}}`,
	} {
		f.Add(uint64(seed), []byte(extra))
	}
	f.Fuzz(func(t *testing.T, seed uint64, extra []byte) {
		spec := specgen.Random(rand.New(rand.NewPCG(seed, 0)), all)
		more := map[string]any{}
		if err := json.Unmarshal(extra, &more); err != nil {
			t.Skip()
		}
		merged := specgen.Merge(spec, more)
		if _, err := decodeSpec(merged); err != nil {
			t.Skip()
		}
		if first, again := outcome(t, merged), outcome(t, merged); first != again {
			t.Error("the same spec is rendered differently")
		}
	})
}
