package validate

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

func TestPlugin(t *testing.T) {
	tests := map[string]struct {
		status string
		err    string
	}{
		"succeeds with a GPU":           {status: `{"allocatable":{"nvidia.com/gpu":"1"}}`},
		"succeeds with a shared GPU":    {status: `{"allocatable":{"nvidia.com/gpu.shared":"10"}}`},
		"succeeds with a MIG device":    {status: `{"allocatable":{"nvidia.com/gpu":"0","nvidia.com/mig-1g.5gb":"7"}}`},
		"succeeds with a thousand GPUs": {status: `{"allocatable":{"nvidia.com/gpu":"1k"}}`},
		"fails where all GPUs are unhealthy": {
			status: `{"capacity":{"cpu":"8","nvidia.com/gpu":"8"},"allocatable":{"cpu":"8","nvidia.com/gpu":"0"}}`,
			err:    "node node-a has nvidia.com/gpu=8, but none can be allocated; see the log of the device plugin"},
		"fails where no plugin has registered": {
			status: `{"capacity":{"cpu":"8"},"allocatable":{"cpu":"8"}}`, err: "node node-a advertises no GPU"},
		"does not count the devices of others": {
			status: `{"allocatable":{"amd.com/gpu":"8","nvidia.com/hostdev":"2"}}`, err: "advertises no GPU"},
		"fails where the node cannot be read": {
			status: `[]`, err: "the resources of node node-a are not known"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Plugin{Node: "node-a", Client: client(t, `{"status":`+tc.status+`}`)}.Check(t.Context())
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
		})
	}
}

// client is one of an API server whose only answer is node.
func client(t *testing.T, node string) *nodeapi.Client {
	t.Helper()
	g := NewWithT(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(node))
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	t.Setenv("KUBERNETES_SERVICE_HOST", address.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", address.Port())
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "token")
	write(t, filepath.Join(dir, "ca.crt"), string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	made, err := nodeapi.InCluster(dir)
	g.Expect(err).NotTo(HaveOccurred())
	return made
}
