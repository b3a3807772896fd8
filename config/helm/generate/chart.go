package main

import (
	"fmt"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// chartYAML returns Chart.yaml. Version and appVersion are those of a working tree; helm package sets those of a
// release. kubeVersion has no upper bound: a cluster that is upgraded, or a client of a newer Helm, must not be locked
// out. The notes warn instead.
func chartYAML() []byte {
	return fmt.Appendf(nil, `# Written by make chart.
apiVersion: v2
name: gpu-operator
description: Makes the NVIDIA GPU nodes of a cluster ready for work, as its ClusterPolicy specifies
type: application
# Of a working tree; make chart-package sets those of a release.
version: 0.0.0-dev
appVersion: latest
# No upper bound: the notes warn above %[2]s.
kubeVersion: ">= %[1]s.0-0"
home: https://github.com/clusterpolicy/gpu-operator
sources:
  - https://github.com/clusterpolicy/gpu-operator
keywords: [gpu, nvidia, cuda, operator]
maintainers:
  - name: The authors of gpu-operator
    url: https://github.com/clusterpolicy/gpu-operator
annotations:
  artifacthub.io/license: Apache-2.0
  artifacthub.io/operator: "true"
`, version.OldestKubernetes, version.NewestKubernetes)
}

// testedTemplate returns, as named templates, the releases of Kubernetes that the notes compare the cluster with.
func testedTemplate() []byte {
	return fmt.Appendf([]byte(fmt.Sprintf(header, "internal/version")), `{{- define "gpu-operator.oldestKubernetes" -}}
%s
{{- end }}
{{- define "gpu-operator.newestKubernetes" -}}
%s
{{- end }}
`, version.OldestKubernetes, version.NewestKubernetes)
}
