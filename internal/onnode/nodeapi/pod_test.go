package nodeapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

const podPath = "/api/v1/namespaces/gpu/pods/v"

var read = nodeapi.Pod{Metadata: nodeapi.PodMetadata{Name: "v", UID: "u-1"}}

func TestCreatePod(t *testing.T) {
	const exists = `{"kind":"Status","reason":"AlreadyExists","message":"pods \"v\" already exists"}`
	tests := map[string]struct {
		status int
		body   string
		exists bool
		err    string
	}{
		"returns the pod as stored": {status: 201, body: `{"metadata":{"name":"v","uid":"u-2"}}`},
		"reports that there is one": {
			status: 409,
			body:   exists,
			exists: true,
			err:    `409 Conflict: pods "v" already exists`,
		},
		// For example a quota that others write at the same time.
		"does not confuse it with other conflicts": {
			status: 409,
			body:   `{"reason":"Conflict","message":"the object has been modified"}`,
			err:    "has been modified",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var request string
			var sent nodeapi.Pod
			dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
				request = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
				if json.NewDecoder(r.Body).Decode(&sent) != nil {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			client, err := nodeapi.InCluster(dir)
			g.Expect(err).NotTo(HaveOccurred())
			created, err := client.CreatePod(t.Context(), "gpu", nodeapi.Pod{Metadata: nodeapi.PodMetadata{Name: "v"}})
			g.Expect(request).To(Equal("POST /api/v1/namespaces/gpu/pods application/json"))
			g.Expect(sent.Kind).To(Equal("Pod"))
			g.Expect(nodeapi.IsAlreadyExists(err)).To(Equal(tc.exists))
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(created.Metadata.UID).To(Equal("u-2"))
		})
	}
}

// The next pod has the same name: it must not be deleted instead of the one that was read.
func TestDeletePodDeletesTheOneThatWasRead(t *testing.T) {
	tests := map[string]struct {
		status int
		err    string
	}{
		"deletes it":                    {status: 200},
		"succeeds where it is gone":     {status: 404},
		"succeeds where another has it": {status: 409},
		"names the missing permission": {
			status: 403,
			err:    "refuses DELETE " + podPath + " (403 Forbidden): check the roles",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var request string
			var options metav1.DeleteOptions
			dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
				request = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type")
				strict := json.NewDecoder(r.Body)
				strict.DisallowUnknownFields()
				if strict.Decode(&options) != nil {
					tc.status = http.StatusBadRequest
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, "{}")
			})
			client, err := nodeapi.InCluster(dir)
			g.Expect(err).NotTo(HaveOccurred())
			err = client.DeletePod(t.Context(), "gpu", read)
			g.Expect(request).To(Equal("DELETE " + podPath + " application/json"))
			g.Expect(options.Kind).To(Equal("DeleteOptions"))
			g.Expect(options.Preconditions.UID).To(HaveValue(BeEquivalentTo("u-1")))
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestOnNode(t *testing.T) {
	g := NewWithT(t)
	text, err := json.Marshal(nodeapi.OnNode("node-a"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(MatchJSON(`{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
		"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]}}}`))
}

func TestAwaitPodGone(t *testing.T) {
	const exists = `{"metadata":{"name":"v","uid":"u-1","resourceVersion":"9"}}`
	tests := map[string]struct {
		status int
		now    string
		events string
		err    string
	}{
		"ends if it is gone": {status: 404, now: "{}"},
		"ends if another has its name": {
			status: 200, now: `{"metadata":{"name":"v","uid":"u-2","resourceVersion":"9"}}`,
		},
		"ends with its deletion": {status: 200, now: exists,
			events: `{"type":"MODIFIED","object":` + exists + `}{"type":"DELETED","object":` + exists + `}`},
		"fails if it may not be read": {status: 403, now: "{}", err: "refuses GET " + podPath + " (403 Forbidden)"},
		"fails if an object is malformed": {
			status: 200, now: exists, events: `{"type":"MODIFIED","object":[]}`, err: "cannot unmarshal",
		},
		"fails if the watch ends before": {status: 200, now: exists,
			events: `{"type":"MODIFIED","object":` + exists + `}`, err: "the watch of " + podPath + " ended: EOF"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				switch {
				case r.URL.Path == podPath:
					w.WriteHeader(tc.status)
					_, _ = io.WriteString(w, tc.now)
				case r.URL.Path == "/api/v1/namespaces/gpu/pods" && query.Get("watch") == "true" &&
					query.Get("fieldSelector") == "metadata.name=v" && query.Get("resourceVersion") == "9":
					_, _ = io.WriteString(w, tc.events)
				default:
					w.WriteHeader(http.StatusTeapot)
				}
			})
			client, err := nodeapi.InCluster(dir)
			g.Expect(err).NotTo(HaveOccurred())
			err = client.AwaitPodGone(t.Context(), "gpu", read)
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestAwaitPodGoneEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	watching := make(chan struct{})
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == podPath {
			_, _ = io.WriteString(w, `{"metadata":{"name":"v","uid":"u-1","resourceVersion":"9"}}`)
			return
		}
		_ = http.NewResponseController(w).Flush()
		close(watching)
		<-r.Context().Done()
	})
	client, err := nodeapi.InCluster(dir)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.AwaitPodGone(ctx, "gpu", read) }()
	g.Eventually(watching, "1m").Should(BeClosed())
	cancel()
	g.Eventually(done, "1m").Should(Receive(MatchError(context.Canceled)))
}
