package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const keptPage = `# TYPE go_gc_heap_live_bytes gauge
go_gc_heap_live_bytes %d
# TYPE go_gc_cycles_total_gc_cycles_total counter
go_gc_cycles_total_gc_cycles_total %d
# TYPE go_goroutines gauge
go_goroutines 123
`

// The first collection leaves what is in pools, and one that has begun before the first request does not count.
func TestKeptByWaitsForTwoCollections(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		collections := 17 + requests/3
		fmt.Fprintf(w, keptPage, 9_000_000-collections, collections)
	}))
	defer server.Close()
	kept, err := KeptBy(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if kept.Live != 9_000_000-19 || kept.Goroutines != 123 || requests != 6 {
		t.Errorf("after %d requests: %+v", requests, kept)
	}
}

func TestKeptByFailsWithoutTheMetrics(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE go_goroutines gauge\ngo_goroutines 1\n")
	}))
	defer server.Close()
	_, err := KeptBy(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	if err == nil || !strings.Contains(err.Error(), "there are 0 metrics go_gc_heap_live_bytes") {
		t.Errorf("got error %v", err)
	}
}
