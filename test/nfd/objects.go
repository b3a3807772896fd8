package nfd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Account is the ServiceAccount of all programs, as in NVIDIA's chart.
const Account = "nfd"

// Objects are those of Node Feature Discovery in NVIDIA's chart, with the rule for kernel modules. That rule matches
// every node here.
const Objects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: nfd, labels: {app.kubernetes.io/name: node-feature-discovery}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nfd-worker-conf, labels: {app.kubernetes.io/name: node-feature-discovery}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nfd, labels: {app.kubernetes.io/name: node-feature-discovery}}
rules:
- {apiGroups: [""], resources: [nodes, nodes/status], verbs: [get, list, watch, patch, update]}
- {apiGroups: [""], resources: [namespaces], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [get]}
- apiGroups: [nfd.k8s-sigs.io]
  resources: [nodefeatures, nodefeaturerules, nodefeaturegroups]
  verbs: [get, list, watch, create, update, delete]
- {apiGroups: [topology.node.k8s.io], resources: [noderesourcetopologies], verbs: [list, delete]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nfd, labels: {app.kubernetes.io/name: node-feature-discovery}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nfd}
subjects: [{kind: ServiceAccount, name: nfd, namespace: gpu-operator}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nfd-master, labels: {app.kubernetes.io/name: node-feature-discovery}}
spec:
  selector: {matchLabels: {app: nfd-master}}
  template:
    metadata: {labels: {app: nfd-master, app.kubernetes.io/name: node-feature-discovery}}
    spec:
      serviceAccountName: nfd
      containers: [{name: master, image: "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nfd-gc, labels: {app.kubernetes.io/name: node-feature-discovery}}
spec:
  selector: {matchLabels: {app: nfd-gc}}
  template:
    metadata: {labels: {app: nfd-gc, app.kubernetes.io/name: node-feature-discovery}}
    spec:
      serviceAccountName: nfd
      containers: [{name: gc, image: "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nfd-worker, labels: {app.kubernetes.io/name: node-feature-discovery}}
spec:
  selector: {matchLabels: {app: nfd-worker}}
  template:
    metadata: {labels: {app: nfd-worker, app.kubernetes.io/name: node-feature-discovery}}
    spec:
      serviceAccountName: nfd
      containers: [{name: worker, image: "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"}]
---
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: nvidia-kernel-modules}
spec: {rules: [{name: kernel modules, labels: {nvidia.com/gds.capable: "true"}}]}
`

// Definitions returns the CustomResourceDefinitions of Node Feature Discovery, without their schemas.
func Definitions() string {
	var text strings.Builder
	for kind, scope := range map[string]string{
		"NodeFeature": "Namespaced", "NodeFeatureRule": "Cluster", "NodeFeatureGroup": "Namespaced",
	} {
		plural := strings.ToLower(kind) + "s"
		fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.nfd.k8s-sigs.io, annotations: {controller-gen.kubebuilder.io/version: v0.18.0}}
spec:
  group: nfd.k8s-sigs.io
  scope: %s
  names: {kind: %s, plural: %s}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {
    type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, plural, scope, kind, plural)
	}
	return text.String()
}

// parse decodes documents.
func parse(text string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), len(text)); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode objects: %w", err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}
