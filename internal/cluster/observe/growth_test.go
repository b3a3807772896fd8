package observe

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Texts of ConfigMaps that grow when they are decoded, by aliases of large texts and of lists of aliases, or that nest
// without end, cost no more than their size: the operator reads every ConfigMap of its namespace.
func TestConfigMapsThatGrow(t *testing.T) {
	large := strings.Repeat("x", 5_000)
	aliases := strings.TrimSuffix(strings.Repeat("*a,", 10_000), ",")
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x]\n")
	for i := range 60 {
		list := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ",")
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i+1, i+1, list)
	}
	for name, content := range map[string]string{
		"aliases of a large text": "x: &a " + large + "\nmig-configs: {a: [" + aliases + "]}",
		"aliases of aliases":      laughs.String() + "mig-configs: {a: *a60}",
		"merged again and again":  "x: &a {b: []}\nmig-configs: {<<: [" + aliases + "]}",
		"nested":                  "mig-configs: " + strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000),
		"shares": "version: v1\nx: &a {name: " + large + ", replicas: 2}\nsharing: {timeSlicing: {resources: [" + aliases +
			"]}}",
		"flags": "version: v1\nflags: " + strings.Repeat("{a: ", 9_000) + strings.Repeat("}", 9_000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"config.yaml", "any", "dcgm-metrics.csv"} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					ConfigMapContent(&corev1.ConfigMap{Data: map[string]string{key: content}})
				}()
				select {
				case <-ended:
				case <-time.After(time.Minute):
					t.Fatal("reading it does not end")
				}
				runtime.ReadMemStats(&after)
				// A node of the parsed text takes some hundred bytes, and it is parsed some times.
				const factor, least = 1500, 1 << 20
				most := uint64(max(len(content)*factor, least))
				if grown := after.TotalAlloc - before.TotalAlloc; grown > most {
					t.Errorf("%s: %d bytes take %d bytes", key, len(content), grown)
				}
			}
		})
	}
}
