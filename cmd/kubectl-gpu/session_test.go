package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// encodedNodes is a list as the API server encodes it.
func encodedNodes(t *testing.T, names ...string) []byte {
	t.Helper()
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range names {
		list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"long": strings.Repeat("x", 2*bufferSize),
		}}})
	}
	return encoded(t, list)
}

func encoded(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDecodeProtobuf(t *testing.T) {
	decode := func(text []byte) (names []string, version string, err error) {
		version, err = decodeProtobuf(bufio.NewReader(bytes.NewReader(text)), func(n *corev1.Node) {
			names = append(names, n.Name)
		})
		return names, version, err
	}
	g := NewWithT(t)
	whole := encodedNodes(t, "a", "b", "c")
	names, version, err := decode(whole)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).To(Equal([]string{"a", "b", "c"}))
	g.Expect(version).To(Equal("7"))
	names, _, err = decode(encodedNodes(t))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).To(BeEmpty())
	for _, broken := range [][]byte{
		nil, []byte("k8s"), []byte("{}}}"), []byte(protobufMagic + "\x12\xff\xff\xff\xff\xff\x7f"),
		whole[:len(whole)/2], whole[:20]} {
		_, _, err := decode(broken)
		g.Expect(err).To(HaveOccurred(), "%d bytes", len(broken))
	}
}

// The reason of the API server is the same in both encodings, and as kubectl prints it.
func TestRefusal(t *testing.T) {
	g := NewWithT(t)
	status := &metav1.Status{
		Reason: metav1.StatusReasonForbidden, Message: "nodes is forbidden", Code: http.StatusForbidden,
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	var out bytes.Buffer
	g.Expect(protobuf.NewSerializer(scheme, scheme).Encode(status, &out)).To(Succeed())
	response := func(media string) *http.Response {
		return &http.Response{Status: "403 Forbidden", Header: http.Header{"Content-Type": {media}}}
	}
	err := refusal(response(typeProtobuf), out.Bytes())
	g.Expect(err).To(MatchError("Error from server (Forbidden): nodes is forbidden"))
	g.Expect(answered(err, "Forbidden")).To(BeTrue())
	body := []byte(`{"reason":"Forbidden","message":"nodes is forbidden"}`)
	g.Expect(refusal(response(typeJSON), body)).To(MatchError(err))
	g.Expect(refusal(response("text/html"), []byte(strings.Repeat("<p>", 1000)))).To(MatchError(HavePrefix(
		"the answer is 403 Forbidden: <p>")))
}

// A busy API server says when to ask again.
func TestASessionAsksAgain(t *testing.T) {
	g, asked := NewWithT(t), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "1")
		}
		if asked <= 2 {
			http.Error(w, "storage is (re)initializing", http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	s := &session{client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}}}
	_, _, err := s.read(t.Context(), "/x", typeJSON, 1)
	g.Expect(err).To(MatchError(ContainSubstring("429 Too Many Requests: storage is")), "without Retry-After it is final")
	g.Expect(asked).To(Equal(2))
	_, _, err = s.read(t.Context(), "/x", typeJSON, 1)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestColours(t *testing.T) {
	g := NewWithT(t)
	g.Expect(newPalette(&bytes.Buffer{}).red("x")).To(Equal("x"), "no terminal")
	g.Expect(palette{on: true}.red("x")).To(Equal("\x1b[31mx\x1b[0m"))
	plain := overviewText(someNodes(), shownAt, false, palette{})
	coloured := overviewText(someNodes(), shownAt, false, palette{on: true})
	g.Expect(coloured).NotTo(Equal(plain))
	for _, code := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	g.Expect(coloured).To(Equal(plain), "colours move no column")
}

// kubectl runs the script with what the user has typed.
func TestCompletion(t *testing.T) {
	g := NewWithT(t)
	g.Expect(kubectlGPU("", "completion", "kubectl").out).To(Equal(script))
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		g.Expect(kubectlGPU("", "completion", shell).out).To(ContainSubstring("kubectl-gpu"))
	}
	got := kubectlGPU("", "__complete", "top", "nodes", "--sort-by", "")
	g.Expect(got.out).To(HavePrefix("name\nutilization\nmemory\npower\ntemperature\n"))
	g.Expect(kubectlGPU("", "__complete", "d").out).To(HavePrefix("diff\t"))
}

// Each command has examples, and its usage names it as users call it.
func TestHelp(t *testing.T) {
	for _, command := range rootCommand().Commands() {
		if command.Name() == "completion" {
			continue // Of cobra; the texts of the shells are its own.
		}
		got := kubectlGPU("", command.Name(), "--help")
		NewWithT(t).Expect(got.out).To(And(ContainSubstring("Examples:\n  kubectl g"), ContainSubstring("kubectl gpu "+
			command.Name())), command.Name())
	}
}
