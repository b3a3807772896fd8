package nodeapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const (
	without = `{"metadata":{"name":"node-a","resourceVersion":"8"},"status":{}}`
	with    = `{"metadata":{"name":"node-a","resourceVersion":"9"},"status":{"allocatable":{"nvidia.com/gpu":"8"}}}`
)

func hasGPU(node nodeapi.Node) bool {
	gpus := node.Status.Allocatable["nvidia.com/gpu"]
	return gpus.Sign() > 0
}

func TestAwaitNode(t *testing.T) {
	tests := map[string]struct {
		status int
		events string
		err    string
	}{
		"ends with the change that is enough": {status: 200,
			events: `{"type":"MODIFIED","object":` + without + `}` + "\n" + `{"type":"MODIFIED","object":` + with + `}`},
		"ignores other events": {status: 200,
			events: `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}{"type":"ADDED","object":` + with + `}`},
		"fails if the Node is deleted": {status: 200,
			events: `{"type":"DELETED","object":` + without + `}`,
			err:    "the watch of /api/v1/nodes/node-a ended: it was deleted"},
		"ends if its last state is enough": {status: 200, events: `{"type":"DELETED","object":` + with + `}`},
		"fails with the API server's reason": {status: 200,
			events: `{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version: 7 (9)"}}`,
			err:    "the watch of /api/v1/nodes/node-a ended: too old resource version: 7 (9)"},
		"fails if the API server ends the watch": {status: 200, err: "the watch of /api/v1/nodes/node-a ended: EOF"},
		"fails if an event is cut off":           {status: 200, events: `{"type":"MODIF`, err: "unexpected EOF"},
		"fails if an object is malformed": {
			status: 200,
			events: `{"type":"ADDED","object":[]}`,
			err:    "cannot unmarshal",
		},
		"names the missing permission": {
			status: 403,
			err:    "refuses GET /api/v1/nodes (403 Forbidden): check the roles",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if r.URL.Path != "/api/v1/nodes" || q.Get("watch") != "true" || q.Get("fieldSelector") != "metadata.name=node-a" ||
					q.Get("resourceVersion") != "7" {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.events))
			})
			client, err := nodeapi.InCluster(dir)
			g.Expect(err).NotTo(HaveOccurred())
			err = client.AwaitNode(t.Context(), "node-a", "7", hasGPU)
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// The events arrive while the answer is still open.
func TestAwaitNodeIsWokenByTheEventAndEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	change, watching := make(chan struct{}), make(chan struct{}, 2)
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		watching <- struct{}{}
		select {
		case <-change:
			_, _ = w.Write([]byte(`{"type":"MODIFIED","object":` + with + `}`))
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
		}
		<-r.Context().Done()
	})
	client, err := nodeapi.InCluster(dir)
	g.Expect(err).NotTo(HaveOccurred())

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	await := func(ctx context.Context) { done <- client.AwaitNode(ctx, "node-a", "7", hasGPU) }
	go await(ctx)
	g.Eventually(watching, "1m").Should(Receive())
	cancel()
	g.Eventually(done, "1m").Should(Receive(MatchError(context.Canceled)))

	go await(t.Context())
	g.Eventually(watching, "1m").Should(Receive())
	at := time.Now()
	close(change)
	g.Eventually(done, "1m").Should(Receive(BeNil()))
	t.Logf("from the change to the end of the wait: %s", time.Since(at))
}
