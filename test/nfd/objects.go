package nfd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Account is the ServiceAccount of all programs, as in NVIDIA's chart.
const Account = "nfd"

// Image is the name of the image in NVIDIA's chart.
const Image = "registry.k8s.io/nfd/node-feature-discovery:v0.19.0"

// Objects are those of Node Feature Discovery in NVIDIA's chart, with the rule for kernel modules. That rule matches
// every node here. The programs are those of Build: nfd-worker has the root file system of its node in its working
// directory.
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
      containers:
      - name: master
        image: ` + Image + `
        command: [nfd-master, -config=, '-options=` + masterOptions + `']
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: KUBERNETES_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
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
      containers:
      - name: gc
        image: ` + Image + `
        command: [nfd-gc]
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: KUBERNETES_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
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
      containers:
      - name: worker
        image: ` + Image + `
        command: [nfd-worker, -config=, '-options=` + ChartOptions + `']
        workingDir: /host
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: KUBERNETES_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        volumeMounts:
        - {name: sys, mountPath: /host/sys, readOnly: true}
        - {name: os-release, mountPath: /host/etc/os-release, readOnly: true}
        - {name: features, mountPath: /etc/kubernetes/node-feature-discovery/features.d, readOnly: true}
      volumes:
      - {name: sys, hostPath: {path: /sys}}
      - {name: os-release, hostPath: {path: /etc/os-release}}
      - {name: features, hostPath: {path: /etc/kubernetes/node-feature-discovery/features.d, type: DirectoryOrCreate}}
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

// InNamespace returns Definitions and Objects, as they are installed in a namespace.
func InNamespace(namespace string) ([]*unstructured.Unstructured, error) {
	objects, err := parse(Definitions() + "---\n" + Objects)
	for _, object := range objects {
		if slices.Contains([]string{"ServiceAccount", "ConfigMap", "DaemonSet", "Deployment"}, object.GetKind()) {
			object.SetNamespace(namespace)
		}
	}
	return objects, err
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
