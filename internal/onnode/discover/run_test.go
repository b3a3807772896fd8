package discover

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// run runs the discovery until the test ends.
func run(t *testing.T, d Discovery) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(ended, "1m").Should(BeClosed())
	})
}

func TestRunDetectsNodeFeatureDiscoveryAtTheResync(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, newMachine(t, "6.8.0-45-generic", ubuntu), server)
	d.Resync = 20 * time.Millisecond
	run(t, d)
	g.Eventually(server.Labels, "1m").Should(Equal(ubuntuLabels))
	server.Write(func(nodeLabels, annotations map[string]string) {
		nodeLabels[kernel], annotations[labels.NFDFeatureLabels] = "5.15", "kernel-version.full"
	})
	g.Eventually(func() string { return server.Annotations()[labels.DiscoveredLabels] }, "1m").
		ShouldNot(ContainSubstring(kernel))
	g.Expect(server.Labels()).To(HaveKeyWithValue(kernel, "5.15"))
	g.Eventually(logged.String, "1m").Should(ContainSubstring("labels of Node Feature Discovery are stale"))
	server.Write(func(nodeLabels, annotations map[string]string) {
		delete(nodeLabels, kernel)
		delete(annotations, labels.NFDFeatureLabels)
	})
	g.Eventually(server.Labels, "1m").Should(Equal(ubuntuLabels))
	g.Eventually(logged.String, "1m").Should(ContainSubstring("no longer labels this node"))
	g.Expect(strings.Count(logged.String(), "labels of Node Feature Discovery are stale")).To(Equal(1))
}

func TestRunFollowsTheFileOfGPUFeatureDiscovery(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, m, server)
	run(t, d)
	g.Eventually(server.Labels, "1m").Should(HaveKey(present))
	labelled := func() string { return server.Labels()[count] }

	m.putFeatures(t, "nvidia.com/gfd.timestamp=1\nnvidia.com/gpu.count=8\n")
	g.Eventually(labelled, "1m").Should(Equal("8"))
	gets, patches := server.Gets(), server.Patches()
	g.Expect(patches).To(Equal(2))

	m.putFeatures(t, "nvidia.com/gfd.timestamp=2\nnvidia.com/gpu.count=8\nx\n")
	g.Eventually(logged.String, "1m").Should(ContainSubstring("1 lines that are not labels"), "it reads the file")
	m.putFeatures(t, "nvidia.com/gfd.timestamp=3\nnvidia.com/gpu.count=7\n")
	g.Eventually(labelled, "1m").Should(Equal("7"))
	g.Expect(server.Labels()).To(HaveKeyWithValue(labels.FeatureTimestamp, "3"))
	g.Expect(server.Patches()).To(Equal(patches + 1))
	g.Expect(server.Gets()).To(Equal(gets+1), "a new timestamp causes no request")
}

func TestRunRemovesTheLabelsOfAFileThatStaysMissing(t *testing.T) {
	g := NewWithT(t)
	m := withH100s(t, newMachine(t, "6.8.0-45-generic", ubuntu))
	m.putFeatures(t, "nvidia.com/gpu.count=8\n")
	server := nodeapitest.Start(t, "node-a")
	d, _ := newDiscovery(t, m, server)
	d.KeepMissing = 300 * time.Millisecond
	run(t, d)
	g.Eventually(server.Labels, "1m").Should(HaveKeyWithValue(count, "8"))
	removed := time.Now()
	g.Expect(os.Remove(d.Features)).To(Succeed())
	g.Eventually(server.Labels, "1m").ShouldNot(HaveKey(count))
	g.Expect(time.Since(removed)).To(BeNumerically(">=", d.KeepMissing))
	g.Expect(server.Labels()).To(Equal(union(ubuntuLabels, gpu3D, mellanox)))
}

func TestRunRemovesTheLabelsOfRemovedGPUsImmediately(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "6.8.0-45-generic", ubuntu)
	m.add(t, gpu(0), "0x10de", "0x030200", "nvidia")
	m.putFeatures(t, "nvidia.com/gpu.count=1\n")
	server := nodeapitest.Start(t, "node-a")
	d, _ := newDiscovery(t, m, server)
	d.Resync = 20 * time.Millisecond
	run(t, d)
	g.Eventually(server.Labels, "1m").Should(Equal(union(ubuntuLabels, gpu3D, map[string]string{count: "1"})))
	m.remove(t, gpu(0))
	g.Eventually(server.Labels, "1m").Should(Equal(ubuntuLabels))
	g.Expect(server.Patches()).To(Equal(2))
}

func TestRunRetriesAfterFailuresOfTheAPIServer(t *testing.T) {
	tests := map[string]struct {
		status int
		text   string
	}{
		"it is overloaded": {status: http.StatusServiceUnavailable, text: "503 Service Unavailable: later"},
		"it limits us":     {status: http.StatusTooManyRequests, text: "429 Too Many Requests: later"},
		"it forbids": {
			status: http.StatusForbidden,
			text:   "check the roles of the pod's service account and the admission policies",
		},
		"it lost the node":  {status: http.StatusNotFound, text: "/api/v1/nodes/node-a does not exist"},
		"it does not trust": {status: http.StatusUnauthorized, text: "401 Unauthorized: later"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := nodeapitest.Start(t, "node-a")
			d, logged := newDiscovery(t, newMachine(t, "6.8.0-45-generic", ubuntu), server)
			server.Refuse(tc.status, "later")
			run(t, d)
			g.Eventually(server.Gets, "1m").Should(BeNumerically(">=", 4), "it tries again")
			g.Expect(logged.String()).To(ContainSubstring(tc.text))
			g.Expect(strings.Count(logged.String(), "level=WARN")).To(Equal(1), logged.String())
			server.Refuse(0, "")
			g.Eventually(server.Labels, "1m").Should(Equal(ubuntuLabels))
			g.Eventually(logged.String, "1m").Should(ContainSubstring("the node is in sync again"))
		})
	}
}

func TestRunRetriesWithoutAnAPIServer(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, newMachine(t, "6.8.0-45-generic", ubuntu), server)
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	client, err := nodeapi.InCluster(server.ServiceAccountDir)
	g.Expect(err).NotTo(HaveOccurred())
	d.Client = client
	r := newRunner(d)
	for range 5 {
		r.nextSync = time.Time{}
		r.runRound(t.Context())
	}
	g.Expect(r.failures).To(Equal(5))
	g.Expect(strings.Count(logged.String(), "level=WARN")).To(Equal(1), logged.String())
	g.Expect(logged.String()).To(ContainSubstring("check network policies and the pod network"))
	g.Expect(time.Until(r.nextSync)).To(BeNumerically("<=", 16*d.backoff))
}

func TestRunLogsOnceWhatCannotBeRead(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "6.8.0-45-generic", ubuntu)
	server := nodeapitest.Start(t, "node-a")
	d, logged := newDiscovery(t, m, server)
	d.Resync = 5 * time.Millisecond
	g.Expect(os.Remove(m.root + "/host/etc/os-release")).To(Succeed())
	run(t, d)
	g.Eventually(server.Gets, "1m").Should(BeNumerically(">", 5))
	g.Expect(strings.Count(logged.String(), "some facts of the node cannot be read")).To(Equal(1))
	m.put(t, "host/etc/os-release", ubuntu)
	g.Eventually(server.Labels, "1m").Should(Equal(ubuntuLabels))
	g.Eventually(logged.String, "1m").Should(ContainSubstring("all facts of the node can be read again"))

	g.Expect(os.Remove(m.root + "/host/etc/os-release")).To(Succeed())
	g.Eventually(func() int { return strings.Count(logged.String(), "some facts of the node cannot be read") }, "1m").
		Should(Equal(2))
	gets := server.Gets()
	g.Eventually(server.Gets, "1m").Should(BeNumerically(">", gets+5))
	g.Expect(server.Labels()).To(Equal(ubuntuLabels), "labels whose value cannot be read stay")
}
