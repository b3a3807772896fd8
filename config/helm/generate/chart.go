package main

import (
	"fmt"

	"github.com/clusterpolicy/gpu-operator/config"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// home is the site of the project.
const home = "https://github.com/clusterpolicy/gpu-operator"

// chartYAML returns Chart.yaml. kubeVersion has no upper bound: a cluster that is upgraded, or a client of a newer
// Helm, must not be locked out. The notes warn instead.
func chartYAML(r release) []byte {
	return fmt.Appendf(nil, `# Written by make chart.
apiVersion: v2
name: gpu-operator
description: Makes the NVIDIA GPU nodes of a cluster ready for work, as its ClusterPolicy specifies
type: application
version: %[3]s
appVersion: %[4]s
# No upper bound: the notes warn above %[2]s.
kubeVersion: ">= %[1]s.0-0"
home: %[5]s
icon: data:%[6]s;base64,%[7]s
sources:
  - %[5]s
keywords: [gpu, nvidia, cuda, operator]
maintainers:
  - name: The authors of gpu-operator
    url: %[5]s
annotations:
  artifacthub.io/license: Apache-2.0
  artifacthub.io/operator: "true"
`, version.OldestKubernetes, version.NewestKubernetes, r.version, r.appVersion(), home,
		config.IconType, config.Icon())
}

// testedTemplate returns, as named templates, the releases of Kubernetes that the notes compare the cluster with.
func testedTemplate() []byte {
	return fmt.Appendf(nil, header+`{{- define "gpu-operator.oldestKubernetes" -}}
%s
{{- end }}
{{- define "gpu-operator.newestKubernetes" -}}
%s
{{- end }}
`, "internal/names/version", version.OldestKubernetes, version.NewestKubernetes)
}
