package nodeapitest

import (
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

const (
	// Token is the bearer token of the pod's service account, which Server requires.
	Token = "the-pods-token"
	// Namespace is the namespace of the pod.
	Namespace = "gpu-operator"
)

// Server is an API server with one Node. It answers GET, watches of the Node by its name, and merge patches (RFC 7386)
// of its metadata as the real one does: a patch for another than the current version is a conflict, and a patch that
// changes nothing creates no new version.
type Server struct {
	// ServiceAccountDir is the directory of the pod's service account.
	ServiceAccountDir string
	// Env is what the kubelet adds to the pod's environment.
	Env []string

	path string

	mu      sync.Mutex
	node    metadata
	version int
	// changed is closed at each new version.
	changed chan struct{}
	gets    int
	watches int
	patches int
	before  func(method string)
	refuse  int
	message string
}

type metadata struct {
	Name            string            `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

// Start starts a server for the Node of that name, which has no labels; it ends with the test.
func Start(t *testing.T, name string) *Server {
	t.Helper()
	s := &Server{
		path: "/api/v1/nodes/" + name, version: 1, changed: make(chan struct{}),
		node: metadata{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
	}
	s.ServiceAccountDir, s.Env = Serve(t, s)
	return s
}

// Serve answers with handler as the API server until the test ends. It returns the directory of a pod's service
// account, and what the kubelet adds to the pod's environment.
func Serve(t *testing.T, handler http.Handler) (serviceAccountDir string, env []string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, content := range map[string][]byte{
		"ca.crt": authority, "token": []byte(Token + "\n"), "namespace": []byte(Namespace),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"KUBERNETES_SERVICE_HOST=" + address.Hostname(), "KUBERNETES_SERVICE_PORT=" + address.Port()}
}

// Labels returns the labels of the Node.
func (s *Server) Labels() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.node.Labels)
}

// Annotations returns the annotations of the Node.
func (s *Server) Annotations() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.node.Annotations)
}

// Gets returns how often the Node was read.
func (s *Server) Gets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets
}

// Patches returns how many requests there were to write the Node, refusals included.
func (s *Server) Patches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patches
}

// Write changes the Node as another client would.
func (s *Server) Write(change func(labels, annotations map[string]string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.node.Labels, s.node.Annotations)
	s.bump()
}

// bump makes a new version.
func (s *Server) bump() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// Before sets a function that is called with the method before each request is answered. It may call Write.
func (s *Server) Before(call func(method string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = call
}

// Refuse makes the server answer each request with that HTTP status and message; 0 ends it.
func (s *Server) Refuse(status int, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.message = status, message
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(r.Method)
	}
	if r.URL.Query().Get("watch") == "true" && s.watch(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refuse != 0:
		s.count(r.Method)
		answer(w, s.refuse, map[string]any{"kind": "Status", "message": s.message})
	case r.Header.Get("Authorization") != "Bearer "+Token:
		answer(w, http.StatusUnauthorized, map[string]any{"kind": "Status", "message": "Unauthorized"})
	case r.URL.Path != s.path:
		answer(w, http.StatusNotFound, map[string]any{"kind": "Status", "message": r.URL.Path + " not found"})
	default:
		s.count(r.Method)
		s.serve(w, r)
	}
}

// Watches returns how many watches of the Node were begun.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// watch sends each version of the Node after the requested one until the client ends it. It returns false if the
// request is refused.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	isOwn := r.URL.Query().Get("fieldSelector") == "metadata.name="+s.node.Name
	if s.refuse != 0 || !isOwn || r.Header.Get("Authorization") != "Bearer "+Token {
		s.mu.Unlock()
		return false
	}
	s.watches++
	s.mu.Unlock()
	sent := r.URL.Query().Get("resourceVersion")
	w.Header().Set("Content-Type", "application/json")
	flusher := http.NewResponseController(w)
	for encoder := json.NewEncoder(w); ; {
		s.mu.Lock()
		node, changed := s.node, s.changed
		node.ResourceVersion = strconv.Itoa(s.version)
		node.Labels, node.Annotations = maps.Clone(node.Labels), maps.Clone(node.Annotations)
		s.mu.Unlock()
		if node.ResourceVersion != sent {
			// Fails if the client has gone.
			_ = encoder.Encode(map[string]any{
				"type": "MODIFIED", "object": map[string]any{"kind": "Node", "metadata": node},
			})
			sent = node.ResourceVersion
		}
		_ = flusher.Flush()
		select {
		case <-r.Context().Done():
			return true
		case <-changed:
		}
	}
}

func (s *Server) count(method string) {
	if method == http.MethodGet {
		s.gets++
	} else {
		s.patches++
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		if status := s.patch(r); status != http.StatusOK {
			answer(w, status, map[string]any{"kind": "Status", "message": http.StatusText(status)})
			return
		}
	}
	s.node.ResourceVersion = strconv.Itoa(s.version)
	answer(w, http.StatusOK, map[string]any{"kind": "Node", "metadata": s.node})
}

func (s *Server) patch(r *http.Request) int {
	if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/merge-patch+json" {
		return http.StatusUnsupportedMediaType
	}
	var patch struct {
		Metadata struct {
			ResourceVersion string             `json:"resourceVersion"`
			Labels          map[string]*string `json:"labels"`
			Annotations     map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if decoder.Decode(&patch) != nil {
		return http.StatusBadRequest
	}
	if wanted := patch.Metadata.ResourceVersion; wanted != "" && wanted != strconv.Itoa(s.version) {
		return http.StatusConflict
	}
	labels, annotations := maps.Clone(s.node.Labels), maps.Clone(s.node.Annotations)
	merge(s.node.Labels, patch.Metadata.Labels)
	merge(s.node.Annotations, patch.Metadata.Annotations)
	if !maps.Equal(labels, s.node.Labels) || !maps.Equal(annotations, s.node.Annotations) {
		s.bump()
	}
	return http.StatusOK
}

func merge(into map[string]string, patch map[string]*string) {
	for key, value := range patch {
		if value == nil {
			delete(into, key)
		} else {
			into[key] = *value
		}
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Fails if the client has gone.
	_ = json.NewEncoder(w).Encode(body)
}
