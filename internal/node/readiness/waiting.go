package readiness

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// waitingWrappers are what kubelets and container runtimes put before a cause. They differ between two attempts of a
// pull, and with the release of the kubelet.
var waitingWrappers = regexp.MustCompile(`^(?:Back-off pulling image "[^"]*"(?:: |$)|ErrImagePull: |` +
	`rpc error: code = \w+ desc = |Error response from daemon: |Failed to create pod sandbox: |` +
	`failed to get sandbox runtime: )+`)

// signature matches the parameters of a URL, by which registries sign the addresses of layers.
var signature = regexp.MustCompile(`(://[^\s"?]*\?)[^\s"]+`)

// waitingCause returns the words of the kubelet about a container that waits because of a failure: which object, image
// or file is missing, or what was refused, as KubeletCause. It is empty if the kubelet says no more than the reason,
// and for a crash loop, of which it says how long the back-off is.
func waitingCause(waiting *corev1.ContainerStateWaiting) string {
	if waiting.Reason == crashLoop {
		return ""
	}
	return KubeletCause(waiting.Message)
}

// KubeletCause returns the words of the kubelet or the container runtime that name the cause of a failure, without what
// they put before it: one line of at most maxLastLine bytes, redacted as LastLine. Of a longer line the end is kept.
func KubeletCause(message string) string {
	// A message of the API is longer than what is searched, if it quotes an answer of a registry.
	message = strings.Join(strings.Fields(Printable(text.Truncate(message, maxSearched))), " ")
	message = waitingWrappers.ReplaceAllString(message, "")
	return text.TruncateBegin(redact(signature.ReplaceAllString(message, "${1}"+redacted)), maxLastLine)
}
