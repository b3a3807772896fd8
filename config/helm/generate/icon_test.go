package main

import (
	"encoding/base64"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// The chart has the icon in itself, so that a catalogue without internet access shows it, and it is that of the bundle.
func TestTheIconOfTheChart(t *testing.T) {
	g := NewWithT(t)
	chart := struct{ Icon string }{}
	g.Expect(yaml.Unmarshal([]byte(generated(g)["Chart.yaml"]), &chart)).To(Succeed())
	data, isEmbedded := strings.CutPrefix(chart.Icon, "data:image/svg+xml;base64,")
	g.Expect(isEmbedded).To(BeTrue(), chart.Icon)
	drawing, err := base64.StdEncoding.DecodeString(data)
	g.Expect(err).NotTo(HaveOccurred())
	image := struct {
		XMLName xml.Name
		ViewBox string `xml:"viewBox,attr"`
	}{}
	g.Expect(xml.Unmarshal(drawing, &image)).To(Succeed())
	g.Expect(image.XMLName).To(Equal(xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}))
	g.Expect(image.ViewBox).To(Equal("0 0 64 64"))
	bundle, err := os.ReadFile(filepath.Join(root, "bundle/manifests/gpu-operator.clusterserviceversion.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(bundle)).To(ContainSubstring("- base64data: " + data + "\n    mediatype: image/svg+xml\n"))
}
