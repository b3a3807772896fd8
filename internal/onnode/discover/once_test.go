package discover

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// log is the log of a discovery; it may be read while it is written.
type log struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(line)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}

// newDiscovery returns a discovery of the machine that never resyncs, and reacts to changes without delay.
func newDiscovery(t *testing.T, m machine, server *nodeapitest.Server) (Discovery, *log) {
	t.Helper()
	for _, variable := range server.Env {
		key, value, _ := strings.Cut(variable, "=")
		t.Setenv(key, value)
	}
	client, err := nodeapi.InCluster(server.ServiceAccountDir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	logged := &log{}
	return Discovery{
		Node: "node-a", Client: client, Host: m.host(), Features: filepath.Join(m.root, "features.d", "gfd"), Mode: ModeAuto,
		Resync: time.Hour, KeepMissing: time.Hour, Log: slog.New(slog.NewTextHandler(logged, nil)),
		settle: time.Millisecond, backoff: time.Millisecond,
	}, logged
}

func (m machine) putFeatures(t *testing.T, content string) {
	t.Helper()
	m.put(t, "features.d/gfd-tmp/gfd-1", content)
	NewWithT(t).Expect(os.Rename(m.root+"/features.d/gfd-tmp/gfd-1", m.root+"/features.d/gfd")).To(Succeed())
}

func TestOnceIsIdempotent(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	m.putFeatures(t, "nvidia.com/gfd.timestamp=1\nnvidia.com/gpu.count=8\n")
	server := nodeapitest.Start(t, "node-a")
	server.Write(func(labels, annotations map[string]string) { labels["a"], annotations["a"] = "b", "b" })
	d, logged := newDiscovery(t, m, server)
	for range 3 {
		g.Expect(d.Once(t.Context())).To(Succeed())
	}
	want := union(ubuntuLabels, gpu3D, mellanox, map[string]string{
		"a": "b", "nvidia.com/gfd.timestamp": "1", "nvidia.com/gpu.count": "8",
	})
	g.Expect(server.Labels()).To(Equal(want))
	g.Expect(server.Annotations()).To(HaveKeyWithValue("a", "b"))
	own := strings.Split(server.Annotations()[labels.DiscoveredLabels], ",")
	g.Expect(own).To(HaveLen(len(want) - 1))
	g.Expect(own).To(HaveEach(Not(Equal("a"))))
	g.Expect(server.Patches()).To(Equal(1))
	g.Expect(server.Gets()).To(Equal(3))
	g.Expect(strings.Count(logged.String(), "the node is labelled")).To(Equal(1))

	// A restart of GPU Feature Discovery or of discovery causes no write either.
	m.putFeatures(t, "nvidia.com/gfd.timestamp=2\nnvidia.com/gpu.count=8\n")
	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(os.Remove(d.Features)).To(Succeed())
	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(server.Patches()).To(Equal(1))
}

func TestOnceReportsWhyTheNodeIsNotLabelled(t *testing.T) {
	tests := map[string]struct {
		prepare func(server *nodeapitest.Server, d *Discovery)
		err     string
	}{
		"the role or the admission policy forbids it": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) {
				s.Refuse(http.StatusForbidden, "ValidatingAdmissionPolicy 'x' denied request")
			},
			err: "refuses GET /api/v1/nodes/node-a (403 Forbidden: ValidatingAdmissionPolicy 'x' denied request): " +
				"check the roles of the pod's service account and the admission policies",
		},
		"only the write is forbidden": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) {
				s.Before(func(method string) {
					if method == http.MethodPatch {
						s.Refuse(http.StatusForbidden, "no")
					}
				})
			},
			err: "refuses PATCH /api/v1/nodes/node-a (403 Forbidden: no): check the roles",
		},
		"the token is not the server's": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) { s.Refuse(http.StatusUnauthorized, "Unauthorized") },
			err:     "(401 Unauthorized: Unauthorized): check the roles",
		},
		"the node does not exist": {
			prepare: func(_ *nodeapitest.Server, d *Discovery) { d.Node = "node-b" },
			err: "node node-b is not labelled: /api/v1/nodes/node-b does not exist: NODE_NAME must come from the field " +
				"spec.nodeName",
		},
		"the server fails": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) { s.Refuse(http.StatusInternalServerError, "etcd is slow") },
			err: "node node-a is not labelled: the API server answers GET /api/v1/nodes/node-a with 500 Internal Server " +
				"Error: etcd is slow",
		},
		"the server finds the patch invalid": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) {
				s.Before(func(method string) {
					if method == http.MethodPatch {
						s.Refuse(http.StatusUnprocessableEntity, "Invalid value")
					}
				})
			},
			err: "answers PATCH /api/v1/nodes/node-a with 422 Unprocessable Entity: Invalid value",
		},
		"another client writes at the same time, repeatedly": {
			prepare: func(s *nodeapitest.Server, _ *Discovery) {
				s.Before(func(method string) {
					if method == http.MethodPatch {
						s.Write(func(labels, _ map[string]string) { labels["a"] += "b" })
					}
				})
			},
			err: "node node-a is not labelled: other clients keep writing the Node: the API server answers PATCH " +
				"/api/v1/nodes/node-a with 409 Conflict",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := nodeapitest.Start(t, "node-a")
			d, _ := newDiscovery(t, newMachine(t, "6.8.0-45-generic", ubuntu), server)
			tc.prepare(server, &d)
			g.Expect(d.Once(t.Context())).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(server.Annotations()).NotTo(HaveKey(labels.DiscoveredLabels))
		})
	}
}

func TestOnceRetriesAfterAConflict(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	d, _ := newDiscovery(t, newMachine(t, "6.8.0-45-generic", ubuntu), server)
	// Node Feature Discovery takes the label over between the read and the write.
	once := sync.OnceFunc(func() {
		server.Write(func(nodeLabels, annotations map[string]string) {
			nodeLabels[kernel], annotations[labels.NFDFeatureLabels] = "6.8.0-45-generic", "kernel-version.full"
		})
	})
	server.Before(func(method string) {
		if method == http.MethodPatch {
			once()
		}
	})
	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(server.Labels()).To(Equal(ubuntuLabels))
	g.Expect(server.Annotations()[labels.DiscoveredLabels]).NotTo(ContainSubstring(kernel))
}

func TestOnceWritesWhatIsKnown(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, m, server)
	g.Expect(os.RemoveAll(m.root + "/sys")).To(Succeed())
	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(server.Labels()).To(Equal(ubuntuLabels))
	g.Expect(logged.String()).To(ContainSubstring("is sysfs mounted at"))
}

// Each step is a process of its own, so the only state is in the Node.
func TestNodeFeatureDiscoveryComesAndGoes(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	m.putFeatures(t, "nvidia.com/gpu.count=8\n")
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, m, server)
	all := union(ubuntuLabels, gpu3D, mellanox, map[string]string{count: "8"})
	// What NFD writes, as NVIDIA configures it. It does not read GPU Feature Discovery's file.
	byNFD := union(ubuntuLabels, map[string]string{present: "true"}, mellanox)
	list := []string{}
	for key := range byNFD {
		list = append(list, strings.TrimPrefix(key, labels.DiscoveryPrefix))
	}
	own := func() string { return server.Annotations()[labels.DiscoveredLabels] }

	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(server.Labels()).To(Equal(all))

	server.Write(func(nodeLabels, annotations map[string]string) {
		for key, value := range byNFD {
			nodeLabels[key] = value
		}
		annotations[labels.NFDFeatureLabels] = strings.Join(list, ",")
	})
	for range 2 {
		g.Expect(d.Once(t.Context())).To(Succeed())
		g.Expect(server.Labels()).To(Equal(all), "no label is lost")
		g.Expect(own()).To(Equal(threeD+","+count), "labels that NFD lists have another owner")
	}
	g.Expect(server.Patches()).To(Equal(2), "one to label, one to release")
	g.Expect(logged.String()).To(ContainSubstring("Node Feature Discovery labels this node"))

	// All GPUs are removed; NFD notices later, and its label is not touched.
	m2 := newMachine(t, "6.8.0-45-generic", ubuntu)
	without := d
	without.Host = m2.host()
	g.Expect(without.Once(t.Context())).To(Succeed())
	g.Expect(server.Labels()).To(Equal(byNFD))
	g.Expect(own()).To(BeEmpty())

	g.Expect(server.Annotations()).NotTo(HaveKey(labels.GPUsOnBus))

	// They are back, and NFD now reads the file.
	server.Write(func(nodeLabels, annotations map[string]string) {
		nodeLabels[count] = "8"
		annotations[labels.NFDFeatureLabels] += "," + count
	})
	before := server.Patches()
	for range 2 {
		g.Expect(d.Once(t.Context())).To(Succeed())
	}
	g.Expect(server.Patches()).To(Equal(before+1), "the GPUs are counted, and NFD lists all labels")
	g.Expect(server.Annotations()).To(HaveKeyWithValue(labels.GPUsOnBus, "8"))
	g.Expect(server.Annotations()).NotTo(HaveKey(labels.DiscoveredLabels))

	// The prune job removes what NFD has written.
	server.Write(func(nodeLabels, annotations map[string]string) {
		for key := range byNFD {
			delete(nodeLabels, key)
		}
		delete(nodeLabels, count)
		delete(annotations, labels.NFDFeatureLabels)
	})
	g.Expect(d.Once(t.Context())).To(Succeed())
	g.Expect(server.Labels()).To(Equal(all))
	g.Expect(strings.Split(own(), ",")).To(HaveLen(len(all)))
}
