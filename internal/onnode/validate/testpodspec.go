package validate

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
)

// The names of the test pod are those of NVIDIA's validator, so that tools find either.
const (
	testPodApp            = "nvidia-device-plugin-validator"
	testPodContainer      = "plugin-validation"
	testPodServiceAccount = "nvidia-operator-validator"
)

const (
	// maxNodePart, in bytes, limits the part of the node's name, of up to 253, in the pod's name: the kubelet
	// creates a directory named after namespace, name and UID, which may have 255.
	maxNodePart = 100
	// hashPart, in bytes, is how much of that is the hash of a longer name.
	hashPart = 16
)

// testPodName returns the name of the one test pod of a node. It ends with the node's name, like those of static
// pods, so that config/admission/operator_validator.yaml can limit a node to its own pod.
func testPodName(node string) string {
	if len(node) > maxNodePart {
		// No separator: either part may end or begin with a character next to which a dash is invalid.
		hash := sha256.Sum256([]byte(node))
		node = node[:maxNodePart-hashPart] + hex.EncodeToString(hash[:hashPart/2])
	}
	return testPodApp + "-" + node
}

// pod returns the test pod.
func (t TestPod) pod(resource string) nodeapi.Pod {
	var secrets []nodeapi.LocalObjectReference
	for _, name := range t.PullSecrets {
		secrets = append(secrets, nodeapi.LocalObjectReference{Name: name})
	}
	return nodeapi.Pod{
		Metadata: nodeapi.PodMetadata{
			Name:            testPodName(t.Node),
			Labels:          map[string]string{labels.App: testPodApp},
			OwnerReferences: []nodeapi.OwnerReference{t.Owner},
		},
		Spec: nodeapi.PodSpec{
			// A restart in the same pod would occupy the GPU while the fault lasts.
			RestartPolicy:                 "Never",
			TerminationGracePeriodSeconds: 1, // It has nothing to save.
			ServiceAccountName:            testPodServiceAccount,
			RuntimeClassName:              t.RuntimeClass,
			PriorityClassName:             t.PriorityClass,
			Affinity:                      nodeapi.OnNode(t.Node),
			Tolerations:                   []nodeapi.Toleration{{Operator: "Exists"}},
			ImagePullSecrets:              secrets,
			Containers: []nodeapi.Container{{
				Name:            testPodContainer,
				Image:           t.Image,
				ImagePullPolicy: t.PullPolicy,
				Command:         []string{labels.CUDABinary},
				Resources:       nodeapi.ContainerResources{Limits: map[string]string{resource: "1"}},
				SecurityContext: &nodeapi.SecurityContext{
					ReadOnlyRootFilesystem: true,
					Capabilities:           nodeapi.Capabilities{Drop: []string{"ALL"}},
					SeccompProfile:         nodeapi.SeccompProfile{Type: "RuntimeDefault"},
				},
				// The program reports why it fails in the last line of its log.
				TerminationMessagePolicy: "FallbackToLogsOnError",
			}},
		},
	}
}
