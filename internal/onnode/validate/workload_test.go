package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// cluster is an API server for the pods of one namespace: it keeps what is created, and shows whoever
// watches a pod the states that the test gives.
type cluster struct {
	// states are the status of the created pod, one after the other.
	states []string
	// refuse is the answer to a creation; "" creates.
	refuse string
	// earlier are pods that exist from the start, by the node that they are bound to.
	earlier map[string][]string

	mutex   sync.Mutex
	created []byte
	deleted []string
	watched chan struct{}
}

const podPath = "/api/v1/namespaces/gpu-operator/pods"

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == podPath:
		c.create(w, r)
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, podPath+"/"):
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.deleted = append(c.deleted, strings.TrimPrefix(r.URL.Path, podPath+"/"))
		_, _ = w.Write([]byte("{}"))
	case query.Get("watch") == "true" && query.Get("fieldSelector") == "metadata.name=new" && query.Get("resourceVersion") == "7":
		c.watch(w, r)
	case r.URL.Path == podPath && query.Get("labelSelector") == "app=nvidia-device-plugin-validator":
		node, ok := strings.CutPrefix(query.Get("fieldSelector"), "spec.nodeName=")
		if !ok {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = w.Write([]byte(`{"items":[` + strings.Join(c.earlier[node], ",") + `]}`))
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

func (c *cluster) create(w http.ResponseWriter, r *http.Request) {
	if c.refuse != "" {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message":"` + c.refuse + `"}`))
		return
	}
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.created = body.Bytes()
	_, _ = w.Write([]byte(`{"metadata":{"name":"new","resourceVersion":"7"},"status":{"phase":"Pending"}}`))
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	for _, state := range c.states {
		kind, object := "MODIFIED", `{"metadata":{"name":"new"},"status":`+state+`}`
		if state == "" {
			kind, object = "DELETED", `{"metadata":{"name":"new","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Pending"}}`
		}
		_, _ = w.Write([]byte(`{"type":"` + kind + `","object":` + object + `}`))
	}
	_ = http.NewResponseController(w).Flush()
	if c.watched != nil {
		close(c.watched)
	}
	<-r.Context().Done()
}

// workload is a Workload in that cluster, with its log.
func workload(t *testing.T, c *cluster) (Workload, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return Workload{
		Client: clientOf(t, c), Node: "node-a", Namespace: "gpu-operator",
		Owner: nodeapi.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "validator", UID: "u-1"},
		Image: "operator:1", PullPolicy: "IfNotPresent", RuntimeClass: "nvidia", PullSecrets: []string{"a", "b"},
		PriorityClass: "lowest", Timeout: time.Minute, FullAfter: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

const (
	unplaced = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",` +
		`"message":"0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."}]}`
	scheduled = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}`
	succeeded = `{"phase":"Succeeded"}`
)

func terminated(message string) string {
	encoded, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	return `{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":1,"reason":"Error","message":` + string(encoded) + `}}}]}`
}

func TestWorkload(t *testing.T) {
	const inUse = "all GPUs are in use, which proves that they can be allocated"
	tests := map[string]struct {
		states []string
		log    string
		err    string
		kept   bool // The pod is left for its log.
	}{
		"succeeds with the pod": {states: []string{scheduled, `{"phase":"Running"}`, succeeded}, log: "a pod got a GPU and computed on it"},
		"passes on a full node": {states: []string{unplaced}, log: inUse},
		"succeeds where a GPU was free soon after": {
			states: []string{unplaced, scheduled, succeeded}, log: "a pod got a GPU"},
		"passes where the kubelet finds the node full": {
			states: []string{scheduled, `{"phase":"Failed","reason":"OutOfnvidia.com/gpu","message":"Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 8, capacity: 8"}`},
			log:    inUse},
		"passes where a user's pod took the GPU back": {
			states: []string{`{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]}`},
			log:    inUse},
		"fails with what the program said last": {
			states: []string{terminated("GPU 0 computes\nGPU 1 gives wrong numbers at index 17; have the GPU serviced\n")}, kept: true,
			err: "the workload pod on node node-a failed: GPU 1 gives wrong numbers at index 17; have the GPU serviced (its log is that of the pod with the label app=nvidia-device-plugin-validator)"},
		"fails with the exit code of a program that says nothing": {
			states: []string{terminated("")}, kept: true, err: "failed: its container ended with exit code 1 (Error) ("},
		"fails with the kubelet's reason": {
			states: []string{`{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"Allocate failed due to device plugin GetPreferredAllocation rpc failed"}`}, kept: true,
			err: "failed: UnexpectedAdmissionError: Allocate failed due to device plugin GetPreferredAllocation rpc failed ("},
		"fails where the pod is deleted": {
			states: []string{scheduled, ""}, err: "the workload pod on node node-a was deleted before it ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{states: tc.states}
			w, log := workload(t, c)
			if len(tc.states) > 1 {
				w.FullAfter = time.Hour // What is not full for long is not full.
			}
			err := w.Run(t.Context(), "nvidia.com/gpu")
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
			g.Expect(log.String()).To(ContainSubstring(tc.log))
			if tc.kept {
				g.Expect(c.deleted).To(BeEmpty())
			} else {
				g.Expect(c.deleted).To(Equal([]string{"new"}))
			}
		})
	}
}

// A pod that gets no further is given up with what it waits for, and does not stay behind.
func TestWorkloadGivesUpWithWhatThePodWaitsFor(t *testing.T) {
	tests := map[string]struct{ state, err string }{
		"for its image": {
			state: `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"operator:1\" of new"}}}]}`,
			err:   `its container waits: ImagePullBackOff: Back-off pulling image "operator:1" of nvidia-device-plugin-validator-*`},
		"for a place, of another reason than GPUs": {
			state: `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available: 1 Too many pods."}]}`,
			err:   "it is not scheduled: Unschedulable: 0/1 nodes are available: 1 Too many pods."},
		"for GPUs of another name": {
			state: strings.ReplaceAll(unplaced, "nvidia.com/gpu,", "nvidia.com/gpu.shared,"),
			err:   "it is not scheduled: Unschedulable: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu.shared"},
		"for its own end": {state: `{"phase":"Running"}`, err: "it is Running; see the kubelet's log"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{states: []string{tc.state}}
			w, _ := workload(t, c)
			w.Timeout = 200 * time.Millisecond
			err := w.Run(t.Context(), "nvidia.com/gpu")
			g.Expect(err).To(MatchError(HavePrefix("the workload pod on node node-a has not ended after 200ms: ")))
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(c.deleted).To(Equal([]string{"new"}))
		})
	}
}

func TestWorkloadThatIsInterruptedDeletesItsPod(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{states: []string{`{"phase":"Running"}`}, watched: make(chan struct{})}
	w, _ := workload(t, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, "nvidia.com/gpu") }()
	g.Eventually(c.watched, "5s").Should(BeClosed())
	cancel(errors.New("terminated signal received"))
	g.Eventually(done, "5s").Should(Receive(MatchError("the workload pod was interrupted: terminated signal received")))
	g.Expect(c.deleted).To(Equal([]string{"new"}))
}

func TestWorkloadFirstDeletesThePodsOfEarlierAttemptsOnItsNode(t *testing.T) {
	g := NewWithT(t)
	waiting := func(name, node string) string {
		encoded, err := json.Marshal(nodeapi.Pod{Metadata: nodeapi.PodMetadata{Name: name}, Spec: nodeapi.PodSpec{Affinity: nodeapi.OnNode(node)}})
		g.Expect(err).NotTo(HaveOccurred())
		return string(encoded)
	}
	c := &cluster{states: []string{succeeded}, earlier: map[string][]string{
		"node-a": {`{"metadata":{"name":"failed"},"spec":{"nodeName":"node-a"}}`},
		"node-b": {`{"metadata":{"name":"of-node-b"},"spec":{"nodeName":"node-b"}}`},
		"":       {waiting("waits-for-a", "node-a"), waiting("waits-for-b", "node-b"), `{"metadata":{"name":"waits-for-any"}}`},
	}}
	w, _ := workload(t, c)
	g.Expect(w.Run(t.Context(), "nvidia.com/gpu")).To(Succeed())
	g.Expect(c.deleted).To(Equal([]string{"failed", "waits-for-a", "new"}))
}

func TestWorkloadSaysWhyItsPodCannotBeCreated(t *testing.T) {
	g := NewWithT(t)
	w, _ := workload(t, &cluster{refuse: "pods is forbidden: no PriorityClass with name lowest was found"})
	g.Expect(w.Run(t.Context(), "nvidia.com/gpu")).To(MatchError(SatisfyAll(
		HavePrefix("the workload pod cannot be created in namespace gpu-operator; check that the priority class lowest exists, and the quotas"),
		ContainSubstring("no PriorityClass with name lowest was found"))))
}

// The pod is written with types of our own: the API server must read them as the Pod that is meant.
func TestWorkloadPodIsThePodThatIsMeant(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{states: []string{succeeded}}
	w, _ := workload(t, c)
	g.Expect(w.Run(t.Context(), "nvidia.com/mig-1g.5gb")).To(Succeed())

	var pod corev1.Pod
	strict := json.NewDecoder(bytes.NewReader(c.created))
	strict.DisallowUnknownFields()
	g.Expect(strict.Decode(&pod)).To(Succeed())
	g.Expect(pod.Kind).To(Equal("Pod"))
	g.Expect(pod.GenerateName).To(Equal("nvidia-device-plugin-validator-"))
	g.Expect(pod.Labels).To(Equal(map[string]string{"app": "nvidia-device-plugin-validator"}))
	g.Expect(pod.OwnerReferences).To(HaveExactElements(And(
		HaveField("Kind", "Pod"), HaveField("Name", "validator"), HaveField("UID", BeEquivalentTo("u-1")))))
	g.Expect(pod.Spec.NodeName).To(BeEmpty(), "the scheduler places it")
	g.Expect(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms).To(Equal(
		[]corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}}}}}))
	g.Expect(pod.Spec.Tolerations).To(Equal([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}))
	g.Expect(pod.Spec.RestartPolicy).To(Equal(corev1.RestartPolicyNever))
	g.Expect(pod.Spec.PriorityClassName).To(Equal("lowest"))
	g.Expect(pod.Spec.RuntimeClassName).To(HaveValue(Equal("nvidia")))
	g.Expect(pod.Spec.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}))
	g.Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	container := pod.Spec.Containers[0]
	g.Expect(container.Image).To(Equal("operator:1"))
	g.Expect(container.Command).To(Equal([]string{"/usr/bin/gpu-node-cuda"}))
	g.Expect(container.Resources.Limits).To(Equal(corev1.ResourceList{"nvidia.com/mig-1g.5gb": resource.MustParse("1")}))
	g.Expect(container.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
	g.Expect(container.SecurityContext.Capabilities.Drop).To(Equal([]corev1.Capability{"ALL"}))
	g.Expect(container.TerminationMessagePolicy).To(Equal(corev1.TerminationMessageFallbackToLogsOnError))
}
