package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

func TestUnsupportedServerIsReported(t *testing.T) {
	tests := map[string]struct {
		answer, want, note string
		code               int
	}{
		"supported": {answer: `{"gitVersion": "v1.34.2+k3s1"}`, code: http.StatusOK},
		"too old": {
			answer: `{"gitVersion": "v1.31.4"}`, code: http.StatusOK,
			want: `"msg"="Continuing on a version of Kubernetes that this release has not been tested on" ` +
				`"reason"="Kubernetes v1.31.4 is not supported: upgrade the cluster to 1.32 or newer"`,
			note: "Kubernetes v1.31.4 is not supported: upgrade the cluster to 1.32 or newer",
		},
		"newer than tested": {
			answer: `{"gitVersion": "v1.38.0"}`, code: http.StatusOK,
			want: `"reason"="Kubernetes v1.38.0 is newer than this release has been tested on, 1.32 to 1.37"`,
			note: "Kubernetes v1.38.0 is newer than this release has been tested on, 1.32 to 1.37",
		},
		"unknown": {
			answer: `{}`, code: http.StatusForbidden,
			want: `"msg"="Continuing without the cluster's version of Kubernetes, which could not be determined"`,
		},
		"no version": {
			answer: `{"gitVersion": "mine"}`, code: http.StatusOK,
			want: `"mine\" is no version of Kubernetes`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Method+" "+r.URL.Path)
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.answer)
			}))
			defer server.Close()
			lines := ""
			note := serverVersion(&rest.Config{Host: server.URL}, server.Client(), clock.RealClock{},
				funcr.New(func(_, args string) { lines += args }, funcr.Options{}))
			g.Expect(note.Text(t.Context())).To(Equal(test.note))
			g.Expect(asked).To(Equal([]string{"GET /version"}))
			if test.want == "" {
				g.Expect(lines).To(BeEmpty())
				return
			}
			g.Expect(lines).To(ContainSubstring(test.want))
		})
	}
}

// The cluster may be upgraded while the operator runs. A read that fails changes nothing.
func TestTheVersionOfTheServerIsReadAgain(t *testing.T) {
	g, answer, code := NewWithT(t), "v1.36.0", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"gitVersion": %q}`, answer)
	}))
	defer server.Close()
	now, logged := clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), 0
	note := serverVersion(&rest.Config{Host: server.URL}, server.Client(), now,
		funcr.New(func(string, string) { logged++ }, funcr.Options{}))
	g.Expect(note.Text(t.Context())).To(BeEmpty())
	answer = "v1.38.0"
	g.Expect(note.Text(t.Context())).To(BeEmpty(), "it is read every 10 minutes at most")
	now.SetTime(time.Unix(1600, 0))
	g.Expect(note.Text(t.Context())).To(ContainSubstring("v1.38.0 is newer"))
	code = http.StatusForbidden
	now.SetTime(time.Unix(2200, 0))
	g.Expect(note.Text(t.Context())).To(ContainSubstring("v1.38.0 is newer"))
	code = http.StatusOK
	now.SetTime(time.Unix(2800, 0))
	g.Expect(note.Text(t.Context())).To(ContainSubstring("v1.38.0 is newer"))
	g.Expect(logged).To(Equal(2), "the version once, and the failure")
	g.Expect((*observe.Note)(nil).Text(t.Context())).To(BeEmpty())
}
