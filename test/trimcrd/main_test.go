package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

func TestTrim(t *testing.T) {
	const definition = `
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: |-
          First paragraph
          in two lines.

          Second paragraph.
        properties:
          kind: {description: "Kind is a string value.\nServers may infer it."}
          image: {description: Image is the image name.}
          use_ocp_toolkit: {description: UseOCPToolkit builds the driver.}
          strategy: {description: Strategy is none or single.}
          labels: {description: Labels of the pods., additionalProperties: {description: LabelValue is a value.}}
          list:
            description: List adds variables.
            items:
              description: EnvVar is a variable.
              properties:
                description: {description: Description is a property.}
                amount: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
                since: {type: string, format: date-time}
          tolerations:
            description: Tolerations of the pods.
            items: {properties: {operator: {description: Operator is of Kubernetes., type: string}}}
          podSecurityContext:
            description: PodSecurityContext of the pods.
            properties:
              runAsUser: {type: integer, format: int64}
              seccompProfile: {properties: {type: {type: string}, localhostProfile: {type: string}}}
              supplementalGroups: {type: array, items: {type: integer}}
`
	const want = `
description: First paragraph in two lines.
properties:
  kind: {description: A string value.}
  image: {description: The image name.}
  use_ocp_toolkit: {description: Builds the driver.}
  strategy: {description: Strategy is none or single.}
  labels: {description: Labels of the pods., additionalProperties: {}}
  list:
    description: Adds variables.
    items:
      properties:
        description: {description: A property.}
        amount: {x-kubernetes-int-or-string: true, minimum: -2147483648, maximum: 2147483647}
        since:
          type: string
          format: date-time
          minItems: 1
          maxItems: 0
          pattern: ^[0-9-]{10}T[0-9:]{8}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$
  tolerations:
    description: Tolerations of the pods.
    items: {properties: {operator: {type: string, enum: ["", Exists, Equal, Lt, Gt]}}}
  podSecurityContext:
    description: PodSecurityContext of the pods.
    properties:
      runAsUser: {type: integer, format: int64, minimum: 0, maximum: 2147483647}
      seccompProfile:
        properties:
          type: {type: string, enum: [RuntimeDefault, Unconfined, Localhost]}
          localhostProfile: {type: string}
      supplementalGroups: {type: array, items: {type: integer, minimum: 0, maximum: 2147483647}}
`
	g := NewWithT(t)
	file, properties := filepath.Join(t.TempDir(), "crd.yaml"), filepath.Join(t.TempDir(), "properties.json")
	g.Expect(os.WriteFile(file, []byte(definition), 0o600)).To(Succeed())
	g.Expect(run([]string{file, properties})).To(Succeed())
	written, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	trimmed := map[string]any{}
	g.Expect(yaml.Unmarshal(written, &trimmed)).To(Succeed())
	schema, err := yaml.Marshal(crd.Schema(trimmed))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(schema)).To(MatchYAML(want))
	g.Expect(os.ReadFile(properties)).To(ContainSubstring(`"tolerations":{"items":{"properties":{"operator":{}}}}`))
}

func TestATooLargeDefinitionFails(t *testing.T) {
	g := NewWithT(t)
	sized := func(size int) map[string]any { return map[string]any{"a": strings.Repeat("b", size-len(`{"a":""}`))} }
	g.Expect(checkSize(sized(crd.MaxSize))).To(Succeed())
	g.Expect(checkSize(sized(crd.MaxSize + 1))).To(MatchError(ContainSubstring(strconv.Itoa(crd.MaxSize+1) + " bytes")))
}
