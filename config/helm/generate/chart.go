package main

import (
	"fmt"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// chartYAML returns Chart.yaml. Version and appVersion are those of a working tree; helm package sets those of a
// release.
func chartYAML() []byte {
	return fmt.Appendf(nil, `# Written by make chart.
apiVersion: v2
name: gpu-operator
description: Makes the NVIDIA GPU nodes of a cluster ready for work, as its ClusterPolicy specifies
type: application
# Of a working tree; make chart-package sets those of a release.
version: 0.0.0-dev
appVersion: latest
# %s to %s.
kubeVersion: ">= %s.0-0 < %s.0-0"
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
`, version.OldestKubernetes, version.NewestKubernetes, version.OldestKubernetes, nextMinor(version.NewestKubernetes))
}

// nextMinor returns the next minor release: 1.37 for 1.36.
func nextMinor(minor string) string {
	return fmt.Sprintf("1.%d", version.Minor(minor)+1)
}
