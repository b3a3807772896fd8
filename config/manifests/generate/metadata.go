package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// Paths of the parts of a bundle in its image.
var folders = []struct{ label, path string }{
	{"operators.operatorframework.io.bundle.manifests.v1", "manifests/"},
	{"operators.operatorframework.io.bundle.metadata.v1", "metadata/"},
	{"operators.operatorframework.io.test.config.v1", "tests/scorecard/"},
}

// labels returns the labels of the image, which are also in metadata/annotations.yaml.
func labels(r release) [][2]string {
	channels, fallback := r.channels()
	all := [][2]string{{"operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"}}
	for _, folder := range folders {
		all = append(all, [2]string{folder.label, folder.path})
	}
	return append(all, [][2]string{
		{"operators.operatorframework.io.bundle.package.v1", packageName},
		{"operators.operatorframework.io.bundle.channels.v1", strings.Join(channels, ",")},
		{"operators.operatorframework.io.bundle.channel.default.v1", fallback},
		{"operators.operatorframework.io.test.mediatype.v1", "scorecard+v1"},
		// This release and later ones. Which one will have the newest Kubernetes is known only when it is out.
		{"com.redhat.openshift.versions", openShift(version.OldestKubernetes)},
	}...)
}

// openShift returns the release of OpenShift that has a minor release of Kubernetes: 4.19 has 1.32, 4.20 has 1.33.
func openShift(kubernetes string) string {
	return fmt.Sprintf("v4.%d", version.Minor(kubernetes)-13)
}

func annotations(r release) []byte {
	text := bytes.NewBufferString("# Written by make bundle.\nannotations:\n")
	for _, label := range labels(r) {
		fmt.Fprintf(text, "  %s: %s\n", label[0], label[1])
	}
	return text.Bytes()
}

// dockerfile returns the Dockerfile of the bundle image, which only has the bundle's files.
func dockerfile(r release) []byte {
	text := bytes.NewBufferString("# Written by make bundle. Its context is this folder.\nFROM scratch\n\n")
	for _, label := range labels(r) {
		fmt.Fprintf(text, "LABEL %s=%s\n", label[0], label[1])
	}
	text.WriteString("\n")
	for _, folder := range folders {
		fmt.Fprintf(text, "COPY %s /%s\n", strings.TrimSuffix(folder.path, "/"), folder.path)
	}
	return text.Bytes()
}

// scorecardImage has the tests that operator-sdk scorecard runs.
const scorecardImage = "quay.io/operator-framework/scorecard-test:v1.41.1"

// scorecard configures operator-sdk scorecard to run its tests that only need the bundle.
func scorecard() []byte {
	text := bytes.NewBufferString(`# Written by make bundle.
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
metadata:
  name: config
stages:
  - parallel: true
    tests:
`)
	for _, test := range [][2]string{
		{"basic", "basic-check-spec"}, {"olm", "olm-bundle-validation"},
		{"olm", "olm-crds-have-validation"}, {"olm", "olm-crds-have-resources"},
		{"olm", "olm-spec-descriptors"}, {"olm", "olm-status-descriptors"},
	} {
		fmt.Fprintf(text, `      - image: %s
        entrypoint: [scorecard-test, %s]
        labels:
          suite: %s
          test: %s-test
`, scorecardImage, test[1], test[0], test[1])
	}
	return text.Bytes()
}
