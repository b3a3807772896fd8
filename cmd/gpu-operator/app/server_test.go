package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
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
			want: `"reason"="Kubernetes v1.38.0 is newer than this release has been tested on, 1.32 to 1.36"`,
			note: "Kubernetes v1.38.0 is newer than this release has been tested on, 1.32 to 1.36",
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
			notes := serverVersionNotes(&rest.Config{Host: server.URL}, server.Client(),
				funcr.New(func(_, args string) { lines += args }, funcr.Options{}))
			g.Expect(strings.Join(notes, "; ")).To(Equal(test.note))
			g.Expect(asked).To(Equal([]string{"GET /version"}))
			if test.want == "" {
				g.Expect(lines).To(BeEmpty())
				return
			}
			g.Expect(lines).To(ContainSubstring(test.want))
		})
	}
}
