package nodeapi_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// serve starts an API server and sets the environment by which a pod finds it. It returns the directory of the pod's
// service account.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	dir, env := nodeapitest.Serve(t, handler)
	inPod(t, env)
	return dir
}

// inPod sets env in this process.
func inPod(t *testing.T, env []string) {
	t.Helper()
	for _, variable := range env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
}

func TestResources(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		want   string // The allocatable nvidia.com/gpu.
		err    string
	}{
		"reads a number": {status: 200, want: "8",
			body: `{"kind":"Node","status":{"capacity":{"nvidia.com/gpu":"8"},` +
				`"allocatable":{"cpu":"95m","nvidia.com/gpu":"8"}}}`},
		"reads a number that the API server abbreviates": {status: 200, want: "1k",
			body: `{"status":{"allocatable":{"nvidia.com/gpu":"1k"}}}`},
		"reads a node without a status": {status: 200, want: "0", body: `{"kind":"Node"}`},
		"names the missing permission": {status: 403, body: `{"kind":"Status"}`,
			err: "refuses GET /api/v1/nodes/node-a (403 Forbidden): check the roles"},
		"names a wrong node name": {
			status: 404,
			err:    "/api/v1/nodes/node-a does not exist: NODE_NAME must come from",
		},
		"names the status of any other answer": {status: 500, err: "500 Internal Server Error"},
		"refuses an answer that is not a Node": {status: 200, body: `<html>`, err: "cannot be decoded"},
		"refuses a quantity that is not a number": {
			status: 200,
			body:   `{"status":{"allocatable":{"nvidia.com/gpu":"many"}}}`,
			err:    "cannot be decoded",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/nodes/node-a" || r.Header.Get("Authorization") != "Bearer "+nodeapitest.Token {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			})
			client, err := nodeapi.InCluster(dir)
			g.Expect(err).NotTo(HaveOccurred())
			read, readErr := nodeapi.ResourcesReader(dir, "node-a")(t.Context())
			got, err := client.Resources(t.Context(), "node-a")
			g.Expect([]any{read, readErr}).To(Equal([]any{got, err}))
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			gpus := got.Allocatable["nvidia.com/gpu"]
			g.Expect(gpus.String()).To(Equal(tc.want))
		})
	}
}

func TestEachRequestUsesTheCurrentToken(t *testing.T) {
	g := NewWithT(t)
	var tokens []string
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	})
	client, err := nodeapi.InCluster(dir)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.Resources(t.Context(), "node-a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "token"), []byte("second\n"), 0o600)).To(Succeed())
	_, err = client.Resources(t.Context(), "node-a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(tokens).To(Equal([]string{"Bearer " + nodeapitest.Token, "Bearer second"}))
}

func TestInClusterReportsWhatThePodIsMissing(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := nodeapi.InCluster(t.TempDir())
	g.Expect(err).To(MatchError(ContainSubstring("run this in a pod")))

	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "6443")
	dir := t.TempDir()
	_, err = nodeapi.InCluster(dir)
	g.Expect(err).To(MatchError(ContainSubstring("automountServiceAccountToken")))

	g.Expect(os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("none"), 0o600)).To(Succeed())
	_, err = nodeapi.InCluster(dir)
	g.Expect(err).To(MatchError(ContainSubstring("no certificate")))
}
