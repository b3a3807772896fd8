package observe_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// One bounded request is made for a log, whatever the answer is.
func TestPodLogs(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	for name, test := range map[string]struct {
		code int
		text string
		want string
		err  string
	}{
		"a log":                     {code: 200, text: "one\ntwo\n", want: "one\ntwo\n"},
		"more than was asked for":   {code: 200, text: long, want: long[:128<<10]},
		"no kubelet":                {code: 502, text: "no route to host", err: "reading the log of pod n/p: "},
		"a server that is too busy": {code: 429, err: "reading the log of pod n/p: "},
	} {
		t.Run(name, func(t *testing.T) {
			g, requests := NewWithT(t), []string{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests = append(requests, r.Method+" "+r.URL.RequestURI())
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte(test.text))
			}))
			defer server.Close()
			logs, err := observe.NewPodLogs(&rest.Config{Host: server.URL}, server.Client())
			g.Expect(err).NotTo(HaveOccurred())
			text, err := logs.Tail(t.Context(), "n", "p", "main")
			if test.err != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.err)))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(text).To(Equal(test.want))
			g.Expect(requests).To(HaveExactElements(
				"GET /api/v1/namespaces/n/pods/p/log?container=main&limitBytes=131072&tailLines=200"))
		})
	}
}
