package nodeapi_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

func connect(t *testing.T, server *nodeapitest.Server) *nodeapi.Client {
	t.Helper()
	inPod(t, server.Env)
	client, err := nodeapi.InCluster(server.ServiceAccountDir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client
}

func pointerTo(value string) *string { return &value }

func TestPatchNodeSetsAndRemovesOnlyWhatIsNamed(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	server.Write(func(labels, annotations map[string]string) {
		labels["kept"], labels["changed"], labels["removed"] = "1", "1", "1"
		annotations["kept"], annotations["removed"] = "1", "1"
	})
	client := connect(t, server)
	g.Expect(client.PatchNode(t.Context(), "node-a", nodeapi.NodeChanges{
		Labels:      map[string]*string{"changed": pointerTo("2"), "removed": nil, "new": pointerTo("2")},
		Annotations: map[string]*string{"removed": nil, "new": pointerTo("2")},
	})).To(Succeed())
	g.Expect(server.Labels()).To(Equal(map[string]string{"kept": "1", "changed": "2", "new": "2"}))
	g.Expect(server.Annotations()).To(Equal(map[string]string{"kept": "1", "new": "2"}))
}

func TestPatchNodeForAVersionIsRefusedOnceTheNodeIsWritten(t *testing.T) {
	g := NewWithT(t)
	server := nodeapitest.Start(t, "node-a")
	client := connect(t, server)
	node, err := client.Node(t.Context(), "node-a")
	g.Expect(err).NotTo(HaveOccurred())
	changes := nodeapi.NodeChanges{
		Labels: map[string]*string{"new": pointerTo("1")}, ResourceVersion: node.Metadata.ResourceVersion,
	}
	server.Write(func(labels, _ map[string]string) { labels["other"] = "1" })
	err = client.PatchNode(t.Context(), "node-a", changes)
	g.Expect(nodeapi.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(server.Labels()).NotTo(HaveKey("new"))

	node, err = client.Node(t.Context(), "node-a")
	g.Expect(err).NotTo(HaveOccurred())
	changes.ResourceVersion = node.Metadata.ResourceVersion
	g.Expect(client.PatchNode(t.Context(), "node-a", changes)).To(Succeed())
	g.Expect(server.Labels()).To(HaveKeyWithValue("new", "1"))
}
