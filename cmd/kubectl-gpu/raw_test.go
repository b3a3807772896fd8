package main

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// The objects of a list are handed over one by one, in whatever order its fields come.
func TestDecodeList(t *testing.T) {
	for name, text := range map[string]string{
		"as the API server writes it": `{"kind":"NodeList","metadata":{"resourceVersion":"7"},"items":[
			{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
		"version last": `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"resourceVersion":"7"}}`,
	} {
		g, names := NewWithT(t), []string{}
		version, err := decodeList(json.NewDecoder(strings.NewReader(text)), func(n *corev1.Node) {
			names = append(names, n.Name)
		})
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(names).To(Equal([]string{"a", "b"}), name)
		g.Expect(version).To(Equal("7"), name)
	}
	for _, text := range []string{"", "[]", `{"items":{}}`, `{"items":[{"metadata":{"name":1}}]}`, `{"items":[`} {
		_, err := decodeList(json.NewDecoder(strings.NewReader(text)), func(*corev1.Node) {})
		NewWithT(t).Expect(err).To(HaveOccurred(), text)
	}
}

// A list of metadata without objects has null, and not a list.
func TestDecodeEmptyList(t *testing.T) {
	version, err := decodeList(json.NewDecoder(strings.NewReader(`{"metadata":{"resourceVersion":"7"},"items":null}`)),
		func(*corev1.Node) { t.Error("an object of an empty list") })
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version).To(Equal("7"))
}

// A watch ends with the connection, or when the API server no longer has the version.
func TestDecodeEvents(t *testing.T) {
	for name, end := range map[string]string{
		"connection": "",
		"version":    `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}`,
	} {
		g, found := NewWithT(t), map[string]bool{}
		events := `{"type":"ADDED","object":{"metadata":{"name":"a"}}} {"type":"DELETED","object":{"metadata":{"name":"b"}}}`
		err := decodeEvents(json.NewDecoder(strings.NewReader(events+end)), func(deleted bool, n *corev1.Node) {
			found[n.Name] = deleted
		})
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(found).To(Equal(map[string]bool{"a": false, "b": true}), name)
	}
	err := decodeEvents(json.NewDecoder(strings.NewReader(`{"type":"ADDED","object":{"metadata":{"name":1}}}`)),
		func(bool, *corev1.Node) {})
	NewWithT(t).Expect(err).To(HaveOccurred())
}
