package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

var imageStreams = schema.GroupVersionKind{Group: "image.openshift.io", Version: "v1", Kind: "ImageStream"}

// streamServer serves lists and watches of a single ImageStream.
type streamServer struct {
	mutex   sync.Mutex
	version int
	tags    []any
	missing bool
	lists   int
	refused []string
	// blocked delays every answer until it is closed.
	blocked chan struct{}
	changed chan struct{}
}

func (s *streamServer) set(tags ...any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.version++
	s.tags, s.missing = tags, false
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *streamServer) object() map[string]any {
	return map[string]any{
		"apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
		"metadata": map[string]any{
			"namespace": "openshift", "name": "driver-toolkit", "uid": "u", "resourceVersion": fmt.Sprint(s.version),
			"annotations": map[string]any{"large": "x"},
		},
		"spec":   map[string]any{"tags": s.tags},
		"status": map[string]any{"tags": []any{map[string]any{"tag": "latest", "items": []any{}}}},
	}
}

func (s *streamServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.blocked != nil {
		select {
		case <-s.blocked:
		case <-r.Context().Done():
			return
		}
	}
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path != "/apis/image.openshift.io/v1/namespaces/openshift/imagestreams" || query.Get(
		"fieldSelector",
	) != "metadata.name=driver-toolkit":
		s.mutex.Lock()
		s.refused = append(s.refused, r.URL.String())
		s.mutex.Unlock()
		w.WriteHeader(http.StatusForbidden)
	case query.Get("sendInitialEvents") != "":
		// Like servers of OpenShift that do not support streaming lists.
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case query.Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w)
	}
}

func (s *streamServer) list(w http.ResponseWriter) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.lists++
	items := []any{s.object()}
	if s.missing {
		items = []any{}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "image.openshift.io/v1",
		"kind":       "ImageStreamList",
		"metadata":   map[string]any{"resourceVersion": fmt.Sprint(s.version)},
		"items":      items,
	})
}

func (s *streamServer) watch(w http.ResponseWriter, r *http.Request) {
	flusher, _ := w.(http.Flusher)
	from := r.URL.Query().Get("resourceVersion")
	for {
		flusher.Flush()
		s.mutex.Lock()
		changed, version, object := s.changed, fmt.Sprint(s.version), s.object()
		s.mutex.Unlock()
		if version != from {
			from = version
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": object})
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func dockerTag(name, image string) map[string]any {
	return map[string]any{
		"name":         name,
		"importPolicy": map[string]any{},
		"from":         map[string]any{"kind": "DockerImage", "name": image},
	}
}

// toolkitEnv is a DriverToolkit with a streamServer.
type toolkitEnv struct {
	*WithT
	server  *streamServer
	mapper  *meta.DefaultRESTMapper
	clock   *testclock.FakeClock
	toolkit *observe.DriverToolkit
	events  <-chan event.GenericEvent
}

func newToolkitEnv(t *testing.T, server *streamServer) toolkitEnv {
	t.Helper()
	e := toolkitEnv{
		WithT:  NewWithT(t),
		server: server,
		mapper: meta.NewDefaultRESTMapper(nil),
		clock:  testclock.NewFakeClock(time.Now()),
	}
	e.SetDefaultEventuallyTimeout(time.Minute)
	server.changed = make(chan struct{})
	listener := httptest.NewServer(server)
	images, err := observe.DriverToolkitCache(&rest.Config{Host: listener.URL}, cache.Options{
		HTTPClient: listener.Client(),
		Mapper:     e.mapper,
	})
	e.Expect(err).NotTo(HaveOccurred())
	e.toolkit = observe.NewDriverToolkit(images, e.mapper, e.clock)
	e.events = e.toolkit.Events()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- images.Start(ctx) }()
	go func() { done <- e.toolkit.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		e.Expect(<-done).To(Succeed())
		e.Expect(<-done).To(Succeed())
		listener.CloseClientConnections()
		listener.Close()
		e.Expect(server.refused).To(BeEmpty(), "only the one object may be read")
	})
	return e
}

func (e toolkitEnv) serve() { e.mapper.Add(imageStreams, meta.RESTScopeNamespace) }

// images returns the current images.
func (e toolkitEnv) images() map[string]string {
	images, err := e.read()
	e.Expect(err).NotTo(HaveOccurred())
	return images
}

// read returns what Images returns. An event precedes the sync of the cache by some milliseconds, in which Images fails
// if the watch is older than 2 s.
func (e toolkitEnv) read() (map[string]string, error) { return e.toolkit.Images(context.Background()) }

func TestDriverToolkitIsWatched(t *testing.T) {
	e := newToolkitEnv(t, &streamServer{
		version: 1,
		tags:    []any{dockerTag("418.94.1-0", "quay.io/dtk@sha256:1"), dockerTag("latest", "quay.io/dtk@sha256:1")},
	})
	e.Expect(e.images()).To(BeNil(), "the API is not served")
	e.serve()
	e.Expect(e.images()).To(BeNil(), "discovery is not repeated immediately")
	e.Eventually(e.clock.HasWaiters).Should(BeTrue())
	e.clock.Step(10 * time.Second)
	e.Eventually(e.events).Should(Receive(), "the API is served")
	e.Expect(e.images()).To(Equal(map[string]string{
		"418.94.1-0": "quay.io/dtk@sha256:1",
		"latest":     "quay.io/dtk@sha256:1",
	}))
	e.Eventually(e.events).Should(Receive())

	e.server.set(dockerTag("418.94.2-0", "quay.io/dtk@sha256:2"))
	e.Eventually(e.events).Should(Receive())
	e.Eventually(e.read).Should(Equal(map[string]string{"418.94.2-0": "quay.io/dtk@sha256:2"}))

	e.Expect(e.toolkit.StopWatch(t.Context())).To(Succeed())
	e.Expect(e.toolkit.StopWatch(t.Context())).To(Succeed(), "a second time changes nothing")
	e.server.set(dockerTag("418.94.3-0", "quay.io/dtk@sha256:3"))
	e.Eventually(e.read).Should(Equal(map[string]string{
		"418.94.3-0": "quay.io/dtk@sha256:3",
	}), "Images starts the watch again")
	e.Expect(e.server.lists).To(Equal(2), "one list for each watch")
}

func TestStopWatchEndsTheDiscovery(t *testing.T) {
	e := newToolkitEnv(t, &streamServer{version: 1, tags: []any{dockerTag("418.94.1-0", "a")}})
	e.Expect(e.images()).To(BeNil())
	e.Eventually(e.clock.HasWaiters).Should(BeTrue())
	e.Expect(e.toolkit.StopWatch(t.Context())).To(Succeed())
	e.serve()
	e.Expect(e.images()).To(HaveLen(1), "the next call discovers the API immediately")
}

func TestClusterWithoutTheImageStream(t *testing.T) {
	e := newToolkitEnv(t, &streamServer{version: 1, missing: true})
	e.serve()
	e.Expect(e.images()).To(BeNil())
	e.Eventually(e.events).Should(Receive(), "a missing ImageStream starts a pass too")
	e.server.set(dockerTag("418.94.1-0", "a"))
	e.Eventually(e.events).Should(Receive())
	e.Eventually(e.read).Should(HaveLen(1))
}

// An API server that does not answer delays only the first calls, and its late answer sends an event.
func TestDriverToolkitThatCannotBeRead(t *testing.T) {
	server := &streamServer{version: 1, tags: []any{dockerTag("418.94.1-0", "a")}, blocked: make(chan struct{})}
	e := newToolkitEnv(t, server)
	e.serve()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := e.toolkit.Images(ctx)
	e.Expect(err).To(MatchError(ContainSubstring("ImageStream openshift/driver-toolkit")))
	e.clock.Step(time.Minute)
	begin := time.Now()
	for range 10 {
		_, err = e.toolkit.Images(t.Context())
		e.Expect(err).To(HaveOccurred())
	}
	e.Expect(time.Since(begin)).To(BeNumerically("<", 10*time.Second), "only the first calls wait 2 s each")
	close(server.blocked)
	e.Eventually(e.events).Should(Receive())
	e.Eventually(e.read).Should(HaveLen(1))
}

func TestDriverToolkitImages(t *testing.T) {
	tests := map[string]struct {
		stream string
		want   map[string]string
	}{
		"images of a registry": {
			stream: `{spec: {tags: [{name: 9.6.1-0, from: {kind: DockerImage, name: quay.io/a}}, ` +
				`{name: latest, from: {kind: DockerImage, name: quay.io/b}}]}}`,
			want: map[string]string{"9.6.1-0": "quay.io/a", "latest": "quay.io/b"},
		},
		"another tag, an empty image, nothing at all": {
			stream: `{spec: {tags: [{name: a, from: {kind: ImageStreamTag, name: b}}, ` +
				`{name: c, from: {kind: DockerImage}}, {name: d}]}}`,
			want: map[string]string{"a": "", "c": "", "d": ""},
		},
		"no name": {
			stream: `{spec: {tags: [{from: {kind: DockerImage, name: e}}]}}`, want: map[string]string{"": ""},
		},
		"no tags":                  {stream: `{spec: {}}`},
		"no spec":                  {stream: `{}`},
		"tags that are not a list": {stream: `{spec: {tags: a}}`},
		"malformed tags": {
			stream: `{spec: {tags: [a, {name: {}, from: b}]}}`, want: map[string]string{"": ""},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			stream := &unstructured.Unstructured{}
			g.Expect(yaml.Unmarshal([]byte(test.stream), &stream.Object)).To(Succeed())
			want := test.want
			if want == nil {
				want = map[string]string{}
			}
			g.Expect(observe.DriverToolkitImages(stream)).To(Equal(want))
		})
	}
}
