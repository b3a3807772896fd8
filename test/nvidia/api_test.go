//go:build linux

package nvidia

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servedNode is the node of an API server that has no pods.
type servedNode struct {
	lock    sync.Mutex
	node    corev1.Node
	version int
	// patches are what programs have changed.
	patches []patch
	// watched receives once a program watches the node.
	watched chan struct{}
}

// patch has the labels of a change, and all of the node after it.
type patch struct{ changed, all map[string]string }

// newNode returns a node with these labels.
func newNode(labels map[string]string) *servedNode {
	n := &servedNode{version: 1, watched: make(chan struct{}, 1)}
	n.node = corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	n.node.Name, n.node.ResourceVersion, n.node.Labels = "a", "1", maps.Clone(labels)
	return n
}

// withConfig returns a node with a configuration of the device plugin, empty for none.
func withConfig(config string) *servedNode {
	if config == "" {
		return newNode(nil)
	}
	return newNode(map[string]string{"nvidia.com/device-plugin.config": config})
}

// label changes labels, as a program has where patched.
func (n *servedNode) label(changes map[string]string, patched bool) {
	n.lock.Lock()
	defer n.lock.Unlock()
	labels := maps.Clone(n.node.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, changes)
	n.node.Labels = labels
	n.version++
	n.node.ResourceVersion = strconv.Itoa(n.version)
	if patched {
		n.patches = append(n.patches, patch{changes, labels})
	}
}

// read returns the node now, its version, and what programs have changed.
func (n *servedNode) read() (node corev1.Node, version int, patches []patch) {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.node, n.version, n.patches
}

// watch sends the node with each change since the client's version, until it leaves.
func (n *servedNode) watch(w http.ResponseWriter, r *http.Request) {
	sent, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case n.watched <- struct{}{}:
	default:
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-look.C:
		}
		node, version, _ := n.read()
		if version == sent {
			continue
		}
		sent = version
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": node})
		_ = http.NewResponseController(w).Flush()
	}
}

// serve answers a program.
func (n *servedNode) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	node, _, _ := n.read()
	var answer any = node
	switch query := r.URL.Query(); {
	case query.Has("sendInitialEvents"):
		http.Error(w, "lists are not streamed", http.StatusBadRequest)
		return
	case query.Has("watch"):
		n.watch(w, r)
		return
	case r.Method == http.MethodPatch:
		var wanted metav1.PartialObjectMetadata
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n.label(wanted.Labels, true)
		answer, _, _ = n.read()
	case strings.HasSuffix(r.URL.Path, "/pods"):
		answer = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	case filepath.Base(r.URL.Path) == "nodes":
		answer = corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			ListMeta: metav1.ListMeta{ResourceVersion: node.ResourceVersion}, Items: []corev1.Node{node},
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// api serves a node to a program, and returns its variables for it.
func (m *machine) api(node *servedNode) []string {
	m.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(node.serve))
	m.t.Cleanup(server.CloseClientConnections)
	const account = "run/secrets/kubernetes.io/serviceaccount/"
	m.write(account+"token", "t")
	m.write(account+"ca.crt",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	NewWithT(m.t).Expect(err).NotTo(HaveOccurred())
	return []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port, "NODE_NAME=a"}
}
