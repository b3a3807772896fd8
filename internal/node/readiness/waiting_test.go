package readiness_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// The words of the kubelet about a container that waits follow the cause as a detail: what is missing, and where. They
// are the same between two attempts, without what the kubelet and the runtime put before them.
func TestWordsOfTheKubelet(t *testing.T) {
	const rpc = "rpc error: code = NotFound desc = "
	const backOff = `Back-off pulling image "nvcr.io/nvidia/driver:1"`
	const notFound = `failed to pull and unpack image "nvcr.io/nvidia/driver:1": failed to resolve reference ` +
		`"nvcr.io/nvidia/driver:1": nvcr.io/nvidia/driver:1: not found`
	const missing = `configmap "metrics" not found`
	for name, test := range map[string]struct{ reason, message, want string }{
		"an attempt to pull":   {"ErrImagePull", rpc + notFound, notFound},
		"between two attempts": {"ImagePullBackOff", backOff + ": ErrImagePull: " + rpc + notFound, notFound},
		"of an older kubelet":  {"ImagePullBackOff", backOff, ""},
		"a missing ConfigMap":  {"CreateContainerConfigError", missing, missing},
		"of Docker":            {"ErrImagePull", "Error response from daemon: toomanyrequests", "toomanyrequests"},
		"several lines":        {"RunContainerError", "runc failed:\n\tno runtime\x1b here ", "runc failed: no runtime here"},
		"time of a back-off":   {"CrashLoopBackOff", "back-off 5m0s restarting failed container=main", ""},
		"nothing":              {"CreateContainerError", "", ""},
		"a sandbox": {
			"CreateContainerError", `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox ` +
				`runtime: no runtime for "nvidia" is configured`, `no runtime for "nvidia" is configured`,
		},
		"a password": {
			"ErrImagePull", "Get https://user:pass@mirror/v2/: refused", "Get https://[redacted]@mirror/v2/: refused",
		},
		"a signed address": {
			"ErrImagePull", `Get "https://cdn/blob?Sig=abc&e=1": forbidden`, `Get "https://cdn/blob?[redacted]": forbidden`,
		},
		"a long one keeps its end": {
			"CreateContainerError", strings.Repeat("wrapped: ", 60) + "no space left on device",
			"... " + strings.Repeat("wrapped: ", 30) + "no space left on device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			waiting := &corev1.ContainerStateWaiting{Reason: test.reason, Message: test.message}
			pod := &corev1.Pod{Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "main", Image: "nvcr.io/nvidia/driver:1", State: corev1.ContainerState{Waiting: waiting},
				}},
			}}
			verdict := readiness.Pod(pod, "", time.Time{})
			g.Expect(verdict.State).To(Equal(readiness.Failed))
			g.Expect(verdict.Detail).To(Equal(test.want))
			g.Expect(len(verdict.Detail)).To(BeNumerically("<=", 300))
		})
	}
}
