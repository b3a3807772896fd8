package main_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi/nodeapitest"
)

// pluginAPI is an API server with a Node whose GPU is allocatable and, if pods is set, with a test pod of that
// status.
type pluginAPI struct {
	pods    string
	created chan corev1.Pod
	deleted chan string
	// answer delays the answer to the creation of a pod.
	answer time.Duration
}

func (a pluginAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		var pod corev1.Pod
		if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.created <- pod
		time.Sleep(a.answer)
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"name": pod.Name, "resourceVersion": "7"}})
	case r.Method == http.MethodDelete:
		a.deleted <- r.URL.Path
		_, _ = w.Write([]byte(`{}`))
	case r.URL.Query().Get("watch") == "true":
		_, _ = w.Write([]byte(`{"type":"MODIFIED","object":{"status":` + a.pods + `}}`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		_, _ = w.Write([]byte(`{"status":{"allocatable":{"nvidia.com/gpu":"1"}}}`))
	}
}

// pluginCommand returns validate plugin in a pod that reaches this API server.
func pluginCommand(t *testing.T, pod pod, handler http.Handler, env ...string) *exec.Cmd {
	t.Helper()
	dir, api := nodeapitest.Serve(t, handler)
	command := pod.command(t, "validate", "plugin", "--service-account-dir="+dir)
	command.Env = append(append(api, "NODE_NAME=node-a"), env...)
	return command
}

// describedPod is the environment of a test pod.
var describedPod = []string{"WITH_WORKLOAD=true", "VALIDATOR_IMAGE=operator:1", "VALIDATOR_IMAGE_PULL_POLICY=Never",
	"VALIDATOR_IMAGE_PULL_SECRETS=a,b", "VALIDATOR_RUNTIME_CLASS=nvidia", "POD_NAME=validator", "POD_UID=u-1"}

func TestValidatePluginRunsTheWorkloadThatTheEnvironmentDescribes(t *testing.T) {
	g := NewWithT(t)
	pod, api := newPod(t), pluginAPI{
		pods:    `{"phase":"Succeeded"}`,
		created: make(chan corev1.Pod, 1),
		deleted: make(chan string, 1),
	}
	out, err := pluginCommand(t, pod, api, describedPod...).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(string(out)).To(ContainSubstring("a pod got a GPU and computed on it"))
	g.Expect(filepath.Join(pod.markers, "plugin-ready")).To(BeAnExistingFile())
	created := <-api.created
	g.Expect(created.Spec.Containers[0].Image).To(Equal("operator:1"))
	g.Expect(created.Spec.Containers[0].ImagePullPolicy).To(Equal(corev1.PullNever))
	g.Expect(created.Spec.ImagePullSecrets).To(HaveLen(2))
	g.Expect(created.Spec.RuntimeClassName).To(HaveValue(Equal("nvidia")))
	g.Expect(created.Spec.PriorityClassName).To(Equal("gpu-operator-validation"))
	g.Expect(created.OwnerReferences[0].Name).To(Equal("validator"))
	g.Expect(api.deleted).To(Receive(Equal("/api/v1/namespaces/gpu-operator/pods/nvidia-device-plugin-validator-node-a")))
}

func TestValidatePluginDeletesItsWorkloadAtSIGTERM(t *testing.T) {
	g := NewWithT(t)
	// The signal comes while the API server is still creating the pod.
	pod, api := newPod(t), pluginAPI{
		pods:    `{"phase":"Running"}`,
		created: make(chan corev1.Pod, 1),
		deleted: make(chan string, 1),
		answer:  300 * time.Millisecond,
	}
	command := pluginCommand(t, pod, api, describedPod...)
	g.Expect(command.Start()).To(Succeed())
	g.Eventually(api.created, "1m").Should(Receive())
	g.Expect(command.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Expect(command.Wait()).To(HaveOccurred())
	g.Expect(api.deleted).To(Receive(HaveSuffix("/pods/nvidia-device-plugin-validator-node-a")))
	g.Expect(pod.message(t)).To(HavePrefix("plugin is not validated (terminated signal received): "))
	g.Expect(filepath.Join(pod.markers, "plugin-ready")).NotTo(BeAnExistingFile())
}

func TestValidatePluginWithoutAWorkloadStartsNoPod(t *testing.T) {
	g := NewWithT(t)
	pod, api := newPod(t), pluginAPI{created: make(chan corev1.Pod, 1)}
	g.Expect(pluginCommand(t, pod, api, "WITH_WORKLOAD=false", "MIG_STRATEGY=single").Run()).To(Succeed())
	g.Expect(api.created).NotTo(Receive())
}

func TestValidatePluginUsageErrorsExitWith2(t *testing.T) {
	tests := map[string]struct {
		flags []string
		env   []string
		want  string
	}{
		"an unknown strategy": {
			env:  []string{"MIG_STRATEGY=Mixed"},
			want: `--mig-strategy or MIG_STRATEGY: unknown MIG strategy "Mixed"; use none, single or mixed`,
		},
		"a boolean that is not one": {
			env:  []string{"WITH_WORKLOAD=on"},
			want: "the environment variable WITH_WORKLOAD: ",
		},
		"a test pod without an image": {
			env:  []string{"WITH_WORKLOAD=true"},
			want: "needs the environment variable VALIDATOR_IMAGE",
		},
		"a test pod without an owner": {
			env:  []string{"WITH_WORKLOAD=true", "VALIDATOR_IMAGE=a"},
			want: "needs the environment variable POD_NAME",
		},
		"a test pod without the owner's ID": {
			env:  []string{"WITH_WORKLOAD=true", "VALIDATOR_IMAGE=a", "POD_NAME=b"},
			want: "needs the environment variable POD_UID",
		},
		"a test pod without time": {
			flags: []string{"--test-pod-timeout=0s"},
			env:   describedPod,
			want:  "--test-pod-timeout=0s must be above 0s",
		},
		"an attempt no longer than its pod": {
			flags: []string{"--test-pod-timeout=10m", "--attempt-timeout=10m"},
			env:   describedPod,
			want:  "--attempt-timeout=10m0s must be above --test-pod-timeout=10m0s",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			command := exec.CommandContext(t.Context(), gpuNode, append([]string{"validate", "plugin"}, tc.flags...)...)
			command.Env = append([]string{"NODE_NAME=node-a"}, tc.env...)
			out, _ := command.CombinedOutput()
			g.Expect(command.ProcessState.ExitCode()).To(Equal(2), string(out))
			g.Expect(string(out)).To(ContainSubstring(tc.want))
		})
	}
}
