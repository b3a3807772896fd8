//go:build linux

package nvidia

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// managed is what config-manager leaves: how it ended, why, as the operator shows it, and what its link names.
type managed struct {
	Code      int
	Why, Link string
}

// config-manager and its stand-in choose alike, and fail alike: also with a link to a file that is gone.
func TestConfigManager(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files                  []string
		label, common, earlier string
		want                   managed
	}{
		"the label":           {files: []string{"a", "b"}, label: "b", common: "a", want: managed{Link: "b"}},
		"the default":         {files: []string{"a", "b"}, common: "a", want: managed{Link: "a"}},
		"neither":             {files: []string{"a", "b"}, want: managed{Link: "/dev/null"}},
		"another one before":  {files: []string{"a", "b"}, label: "b", earlier: "a", want: managed{Link: "b"}},
		"the same one before": {files: []string{"a", "b"}, label: "b", earlier: "b", want: managed{Link: "b"}},
		"no such key": {
			files: []string{"a"}, label: "b", want: managed{Code: 1, Why: "specified config b does not exist"},
		},
		"no such default": {
			files: []string{"a"}, common: "b", want: managed{Code: 1, Why: "specified config  does not exist"},
		},
		"no keys":              {want: managed{Code: 1, Why: "no configuration files available"}},
		"the link is dangling": {files: []string{"a"}, label: "a", earlier: "b", want: managed{Code: 1, Link: "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, of := range map[string]program{
				"NVIDIA's": {name: "config-manager"}, "the stand-in": {name: "config-manager", standIn: standIn},
			} {
				m := newMachine(t, t4)
				configs, place := mkdir(NewWithT(t), m.dir, "configs"), filepath.Join(m.dir, "config.yaml")
				link := func(name string) string {
					if filepath.IsAbs(name) {
						return name
					}
					return filepath.Join(configs, name)
				}
				for _, file := range test.files {
					m.write(filepath.Join("configs", file), "version: v1\n")
				}
				if test.earlier != "" {
					NewWithT(t).Expect(os.Symlink(link(test.earlier), place)).To(Succeed())
				}
				want := test.want
				if want.Link != "" {
					want.Link = link(want.Link)
				}
				if want.Code != 0 && want.Link != "" {
					want.Why = "error creating symlink: symlink " + link(test.label) + " " + place + ": file exists"
				}
				got := m.manage(of, test.label, test.common, configs, place)
				NewWithT(t).Expect(got).To(Equal(want), kind)
			}
		})
	}
}

// manage runs config-manager once, on a node with this label and with this default, for a link at a place.
func (m *machine) manage(of program, label, common, configs, place string) managed {
	m.t.Helper()
	g := NewWithT(m.t)
	node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.ResourceVersion = "a", "1"
	if label != "" {
		node.Labels = map[string]string{labels.DevicePluginConfig: label}
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: []corev1.Node{node},
		}
		switch {
		case r.URL.Query().Get("watch") != "":
			http.Error(w, "no watch", http.StatusBadRequest)
			return
		case filepath.Base(r.URL.Path) == node.Name:
			answer = node
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	const account = "run/secrets/kubernetes.io/serviceaccount/"
	m.write(account+"token", "t")
	m.write(account+"ca.crt",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	p := m.command(m.t.Context(), []string{
		"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port, "NODE_NAME=" + node.Name,
		"NODE_LABEL=" + labels.DevicePluginConfig, "ONESHOT=true", "SEND_SIGNAL=false", "FALLBACK_STRATEGIES=empty",
		"CONFIG_FILE_SRCDIR=" + configs, "CONFIG_FILE_DST=" + place, "DEFAULT_CONFIG=" + common,
	}, of)
	var exit *exec.ExitError
	if err := p.Run(); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	found := managed{Code: p.ProcessState.ExitCode()}
	if found.Code != 0 {
		found.Why = result{Code: found.Code, Output: p.log.String()}.why()
	}
	if found.Link, err = os.Readlink(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return found
}
