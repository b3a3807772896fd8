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
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// cluster is an API server for the test pod of node-a: it stores the pod that is created, and a watch of that pod
// gets the states of the test.
type cluster struct {
	// states are the status of the created pod, one after the other.
	states []string
	// refuse is the answer to a creation; "" creates.
	refuse string
	// ends is how deleted pods end.
	ends ending
	// present is the pod that exists, from the start or since it was created.
	present *nodeapi.Pod

	mutex   sync.Mutex
	created []byte
	deleted []string // By their UIDs.
	watched chan struct{}
	ending  chan struct{} // Closed by the watch of a pod that never ends.
}

type ending int

const (
	immediately ending = iota
	// later: while their end is watched.
	later
	never
)

const (
	podsPath = "/api/v1/namespaces/gpu-operator/pods"
	podName  = "nvidia-device-plugin-validator-node-a"
)

func (c *cluster) ServeHTTP(p http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == podsPath:
		c.create(p, r)
	case r.Method == http.MethodDelete && r.URL.Path == podsPath+"/"+podName:
		c.delete(p, r)
	case r.Method == http.MethodGet && r.URL.Path == podsPath+"/"+podName:
		c.get(p)
	case r.URL.Path == podsPath && query.Get("watch") == "true" && query.Get("fieldSelector") == "metadata.name="+podName:
		if query.Get("resourceVersion") == "7" {
			c.watch(p, r)
		} else {
			c.watchEnd(p, r)
		}
	default:
		p.WriteHeader(http.StatusTeapot)
	}
}

func (c *cluster) create(p http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch {
	case c.refuse != "":
		p.WriteHeader(http.StatusForbidden)
		_, _ = p.Write([]byte(`{"message":"` + c.refuse + `"}`))
		return
	case c.present != nil:
		p.WriteHeader(http.StatusConflict)
		_, _ = p.Write(
			[]byte(`{"reason":"AlreadyExists","message":"pods \"` + c.present.Metadata.Name + `\" already exists"}`))
		return
	}
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	c.created = body.Bytes()
	c.present = &nodeapi.Pod{Metadata: nodeapi.PodMetadata{Name: podName, UID: "new", ResourceVersion: "7"}}
	_ = json.NewEncoder(p).Encode(c.present)
}

func (c *cluster) delete(p http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var options struct {
		Preconditions struct{ UID string }
	}
	switch {
	case json.NewDecoder(r.Body).Decode(&options) != nil:
		p.WriteHeader(http.StatusBadRequest)
		return
	case c.present == nil:
		p.WriteHeader(http.StatusNotFound)
		return
	case c.present.Metadata.UID != options.Preconditions.UID:
		p.WriteHeader(http.StatusConflict)
		return
	}
	c.deleted = append(c.deleted, c.present.Metadata.UID)
	c.present.Metadata.ResourceVersion, c.present.Metadata.DeletionTimestamp = "8", "2026-01-01T00:00:00Z"
	if c.ends == immediately {
		c.present = nil
	}
	_, _ = p.Write([]byte("{}"))
}

func (c *cluster) get(p http.ResponseWriter) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.present == nil {
		p.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(p).Encode(c.present)
}

func (c *cluster) watch(p http.ResponseWriter, r *http.Request) {
	for _, state := range c.states {
		eventType, object := "MODIFIED", `{"metadata":{"name":"`+podName+`"},"status":`+state+`}`
		if state == "" {
			eventType, object = "DELETED", `{"metadata":{"name":"`+podName+
				`","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Pending"}}`
		}
		_, _ = p.Write([]byte(`{"type":"` + eventType + `","object":` + object + `}`))
	}
	_ = http.NewResponseController(p).Flush()
	if c.watched != nil {
		close(c.watched)
	}
	<-r.Context().Done()
}

// watchEnd answers the watch of a pod that was deleted.
func (c *cluster) watchEnd(p http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(p).Flush()
	if c.ends == never {
		if c.ending != nil {
			close(c.ending)
		}
		<-r.Context().Done()
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	object, _ := json.Marshal(c.present)
	c.present = nil
	_, _ = p.Write([]byte(`{"type":"DELETED","object":` + string(object) + `}`))
}

// testPod returns a TestPod in this cluster, and its log.
func testPod(t *testing.T, c *cluster) (TestPod, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return TestPod{
		Client: clientOf(t, c), Node: "node-a", Namespace: "gpu-operator",
		Owner: nodeapi.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "validator", UID: "u-1"},
		Image: "operator:1", PullPolicy: "IfNotPresent", RuntimeClass: "nvidia", PullSecrets: []string{"a", "b"},
		PriorityClass: "lowest", Timeout: time.Minute, FullAfter: time.Millisecond, EndTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

const (
	unplaced = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",` +
		`"message":"0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't satisfy plugin(s) ` +
		`[NodeAffinity]. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."}]}`
	scheduled = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}`
	succeeded = `{"phase":"Succeeded"}`
)

func terminated(message string) string {
	encoded, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	return `{"phase":"Failed","containerStatuses":[{"state":{"terminated":{"exitCode":1,"reason":"Error","message":` +
		string(encoded) + `}}}]}`
}

func TestWorkload(t *testing.T) {
	const inUse = "all GPUs are in use, which shows that they can be allocated"
	tests := map[string]struct {
		states []string
		log    string
		err    string
		kept   bool // The pod is left for its log.
	}{
		"succeeds with the pod": {
			states: []string{scheduled, `{"phase":"Running"}`, succeeded},
			log:    "a pod got a GPU and computed on it",
		},
		"passes on a full node": {states: []string{unplaced}, log: inUse},
		"succeeds if a GPU is free soon after": {
			states: []string{unplaced, scheduled, succeeded}, log: "a pod got a GPU"},
		"passes if the kubelet finds the node full": {
			states: []string{
				scheduled,
				`{"phase":"Failed","reason":"OutOfnvidia.com/gpu","message":"Node didn't have enough resource: nvidia.com/gpu, ` +
					`requested: 1, used: 8, capacity: 8"}`,
			},
			log: inUse},
		"passes if a user's pod took the GPU back": {
			states: []string{
				`{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]}`,
			},
			log: inUse},
		"fails with the program's last line": {
			states: []string{
				terminated("GPU 0 computes\nGPU 1 gives wrong numbers at index 17; have the GPU serviced\n"),
			},
			kept: true,
			err: "the test pod on node node-a failed: GPU 1 gives wrong numbers at index 17; have the GPU serviced " +
				"(see the log of the pod nvidia-device-plugin-validator-node-a)"},
		"fails with the exit code of a program without output": {
			states: []string{terminated("")}, kept: true, err: "failed: its container ended with exit code 1 (Error) ("},
		"fails with the kubelet's reason": {
			states: []string{
				`{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"Allocate failed due to device plugin ` +
					`GetPreferredAllocation rpc failed"}`,
			},
			kept: true,
			err:  "failed: UnexpectedAdmissionError: Allocate failed due to device plugin GetPreferredAllocation rpc failed ("},
		"fails if the pod is deleted": {
			states: []string{scheduled, ""}, err: "the test pod on node node-a was deleted before it ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{states: tc.states}
			p, log := testPod(t, c)
			if len(tc.states) > 1 {
				p.FullAfter = time.Hour // A node is not full if a GPU is free soon after.
			}
			err := p.Run(t.Context(), "nvidia.com/gpu")
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

// A pod that makes no progress fails with what it waits for, and is deleted.
func TestWorkloadFailsWithWhatThePodWaitsFor(t *testing.T) {
	tests := map[string]struct{ state, err string }{
		"for its image": {
			state: `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[` +
				`{"state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"operator:1\""}}}]}`,
			err: `its container is waiting: ImagePullBackOff: Back-off pulling image "operator:1"`},
		"for a place, for another reason than GPUs": {
			state: `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",` +
				`"message":"0/1 nodes are available: 1 Too many pods."}]}`,
			err: "it is not scheduled: Unschedulable: 0/1 nodes are available: 1 Too many pods."},
		"for GPUs of another name": {
			state: strings.ReplaceAll(unplaced, "nvidia.com/gpu,", "nvidia.com/gpu.shared,"),
			err:   "it is not scheduled: Unschedulable: 0/3 nodes are available: 1 Insufficient nvidia.com/gpu.shared"},
		"for its own end": {state: `{"phase":"Running"}`, err: "it is Running; see the kubelet's log"},
	}
	clusters, ended := map[string]*cluster{}, map[string]chan error{}
	for name, tc := range tests {
		done := make(chan error, 1)
		clusters[name], ended[name] = &cluster{states: []string{tc.state}}, done
		p, _ := testPod(t, clusters[name])
		p.Timeout = 5 * time.Second // The watch begins within it, also on a busy machine.
		go func() { done <- p.Run(t.Context(), "nvidia.com/gpu") }()
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := <-ended[name]
			g.Expect(err).To(MatchError(HavePrefix("the test pod on node node-a has not ended after 5s: ")))
			g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			g.Expect(clusters[name].deleted).To(Equal([]string{"new"}))
		})
	}
}

func TestWorkloadThatIsInterruptedDeletesItsPod(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{states: []string{`{"phase":"Running"}`}, watched: make(chan struct{})}
	p, _ := testPod(t, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, "nvidia.com/gpu") }()
	g.Eventually(c.watched, "1m").Should(BeClosed())
	cancel(errors.New("terminated signal received"))
	g.Eventually(done, "1m").Should(Receive(MatchError("the test pod was interrupted: terminated signal received")))
	g.Expect(c.deleted).To(Equal([]string{"new"}))
}

// earlier is the pod of an earlier attempt.
func earlier() *nodeapi.Pod {
	return &nodeapi.Pod{Metadata: nodeapi.PodMetadata{
		Name: podName, UID: "earlier", ResourceVersion: "5",
		Labels: map[string]string{"app": "nvidia-device-plugin-validator"},
	}}
}

func TestWorkloadReplacesThePodOfAnEarlierAttempt(t *testing.T) {
	for name, ends := range map[string]ending{"that ends immediately": immediately, "that ends later": later} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{states: []string{succeeded}, present: earlier(), ends: ends}
			p, log := testPod(t, c)
			g.Expect(p.Run(t.Context(), "nvidia.com/gpu")).To(Succeed())
			g.Expect(log.String()).To(ContainSubstring("a pod got a GPU and computed on it"))
			g.Expect(c.deleted).To(Equal([]string{"earlier", "new"}))
		})
	}
}

// A pod whose GPU hangs occupies it while it cannot end: then the node only looks full.
func TestWorkloadThatDoesNotEndIsAFailure(t *testing.T) {
	const remedy = " on node node-a has not ended 200ms after its deletion; see the kernel log of the node for Xid " +
		"errors of its GPU, and the kubelet's log for the pod " + podName
	terminating := earlier()
	terminating.Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z"
	preempted := `{"phase":"Running",` +
		`"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]}`
	tests := map[string]struct {
		present *nodeapi.Pod
		state   string
		err     string
	}{
		"the earlier one, which runs": {present: earlier(), state: unplaced, err: "the earlier test pod" + remedy},
		"the earlier one, which is deleted": {
			present: terminating,
			state:   unplaced,
			err:     "the earlier test pod" + remedy,
		},
		"its own, which is preempted": {state: preempted, err: "the test pod" + remedy},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := &cluster{states: []string{tc.state}, present: tc.present, ends: never}
			p, log := testPod(t, c)
			p.EndTimeout = 200 * time.Millisecond
			g.Expect(p.Run(t.Context(), "nvidia.com/gpu")).To(MatchError(tc.err))
			g.Expect(log.String()).NotTo(ContainSubstring("in use"))
		})
	}
}

func TestWorkloadThatIsInterruptedDoesNotWaitForAnEarlierPod(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{present: earlier(), ends: never, ending: make(chan struct{})}
	p, _ := testPod(t, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, "nvidia.com/gpu") }()
	g.Eventually(c.ending, "1m").Should(BeClosed())
	cancel(errors.New("terminated signal received"))
	g.Eventually(done, "1m").Should(Receive(MatchError("the test pod was interrupted: terminated signal received")))
}

func TestWorkloadDeletesNoOtherPodWithItsName(t *testing.T) {
	g := NewWithT(t)
	foreign := earlier()
	foreign.Metadata.Labels = nil
	c := &cluster{present: foreign}
	p, _ := testPod(t, c)
	g.Expect(p.Run(t.Context(), "nvidia.com/gpu")).To(MatchError(
		"the pod gpu-operator/" + podName + " is not a test pod, but has the name of the test pod of node node-a; " +
			"delete it"))
	g.Expect(c.deleted).To(BeEmpty())
}

// The admission policies in config/admission depend on these names.
func TestWorkloadName(t *testing.T) {
	hundred := strings.Repeat("a", 100)
	longest := strings.Repeat("a", 83) + "." + strings.Repeat("b", 169)
	tests := map[string]struct{ node, name string }{
		"ends with that of the node": {
			"ip-10-0-1-2.ec2.internal",
			"nvidia-device-plugin-validator-ip-10-0-1-2.ec2.internal",
		},
		"contains a long one": {hundred, "nvidia-device-plugin-validator-" + hundred},
		"contains the hash of one that is longer": {
			longest,
			"nvidia-device-plugin-validator-" + longest[:84] + "97158e587e325ad3",
		},
		"differs where names differ in the rest": {
			longest[:252] + "c",
			"nvidia-device-plugin-validator-" + longest[:84] + "887e3c251abd0d35",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(testPodName(tc.node)).To(Equal(tc.name))
			g.Expect(validation.IsDNS1123Subdomain(tc.name)).To(BeEmpty())
		})
	}
}

func TestWorkloadReportsWhyItsPodCannotBeCreated(t *testing.T) {
	g := NewWithT(t)
	p, _ := testPod(t, &cluster{refuse: "pods is forbidden: no PriorityClass with name lowest was found"})
	const remedy = "the test pod cannot be created in namespace gpu-operator; check that the priority class lowest " +
		"exists, and the quotas"
	g.Expect(p.Run(t.Context(), "nvidia.com/gpu")).To(MatchError(SatisfyAll(
		HavePrefix(remedy), ContainSubstring("no PriorityClass with name lowest was found"),
	)))
}

// The pod is written with types of this project: the API server must read them as the intended Pod.
func TestWorkloadPodIsAValidPod(t *testing.T) {
	g := NewWithT(t)
	c := &cluster{states: []string{succeeded}}
	p, _ := testPod(t, c)
	g.Expect(p.Run(t.Context(), "nvidia.com/mig-1g.5gb")).To(Succeed())

	var pod corev1.Pod
	strict := json.NewDecoder(bytes.NewReader(c.created))
	strict.DisallowUnknownFields()
	g.Expect(strict.Decode(&pod)).To(Succeed())
	g.Expect(pod.Kind).To(Equal("Pod"))
	g.Expect(pod.Name).To(Equal(podName))
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
