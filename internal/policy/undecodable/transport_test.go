package undecodable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

const (
	good = `{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"good","resourceVersion":"7"},` +
		`"spec":{"driver":{"enabled":true}}}`
	bad = `{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicy","metadata":{"name":"bad"},` +
		`"spec":{"toolkit":{"resources":{"limits":{"cpu":"1e-99999999999"}}}}}`
	path = "/apis/nvidia.com/v1/clusterpolicies"
)

// get returns what a client reads through the transport where the API server answers this.
func get(t *testing.T, path, contentType, answer string) string {
	t.Helper()
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	client := http.Client{Transport: kinds(t).Wrap(http.DefaultTransport)}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func TestAListIsDecodedBesideABadObject(t *testing.T) {
	g := NewWithT(t)
	answer := fmt.Sprintf(`{"apiVersion":"nvidia.com/v1","kind":"ClusterPolicyList","metadata":{"resourceVersion":"9"},`+
		`"items":[%s,%s]}`, bad, good)
	list := v1.ClusterPolicyList{}
	g.Expect(json.Unmarshal([]byte(get(t, path, "application/json", answer)), &list)).To(Succeed())
	g.Expect(list.ResourceVersion).To(Equal("9"))
	g.Expect(list.Items).To(HaveLen(2))
	g.Expect(list.Items[0].Annotations).To(HaveKeyWithValue("nvidia.com/gpu-operator.undecodable",
		ContainSubstring("spec.toolkit.resources.limits[cpu]")))
	g.Expect(list.Items[1].Annotations).To(BeEmpty())
	g.Expect(*list.Items[1].Spec.Driver.Enabled).To(BeTrue())
}

func TestAWatchGoesOnAfterABadObject(t *testing.T) {
	g := NewWithT(t)
	events := fmt.Sprintf(`{"type":"ADDED","object":%s}`+"\n"+`{"type":"MODIFIED","object":%s}`+"\n"+
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`+"\n", bad, good)
	in := json.NewDecoder(strings.NewReader(get(t, path+"?watch=true", "application/json", events)))
	type event struct {
		Type   string
		Object struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
			Spec map[string]any
			Code int
		}
	}
	var got []event
	for in.More() {
		next := event{}
		g.Expect(in.Decode(&next)).To(Succeed())
		got = append(got, next)
	}
	g.Expect(got).To(HaveLen(3))
	g.Expect(got[0].Object.Metadata.Annotations).To(HaveLen(1))
	g.Expect(got[0].Object.Spec).To(Equal(map[string]any{
		"toolkit": map[string]any{"resources": map[string]any{"limits": map[string]any{}}},
	}))
	g.Expect(got[1].Object.Metadata.Name).To(Equal("good"))
	g.Expect(got[1].Object.Metadata.Annotations).To(BeEmpty())
	g.Expect(got[2].Object.Code).To(Equal(410))
}

// An object that is the answer, as to a write.
func TestABadAnswerIsDecoded(t *testing.T) {
	g := NewWithT(t)
	g.Expect(get(t, path+"/bad", "application/json", bad)).To(ContainSubstring("gpu-operator.undecodable"))
}

func TestOtherAnswersAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	for _, test := range []struct{ path, contentType, answer string }{
		{path, "application/json", good},
		{path, "application/json", "no JSON"},
		{path, "application/vnd.kubernetes.protobuf", bad},
		{"/apis/example.com/v1/clusterpolicies", "application/json", bad},
		{path, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure"}`},
	} {
		g.Expect(get(t, test.path, test.contentType, test.answer)).To(Equal(test.answer))
	}
}

// An answer that was not read as a whole, or that is no object of the API, is an error of the request.
func TestAnAnswerThatCannotBeReadIsAnError(t *testing.T) {
	for want, body := range map[string]io.Reader{
		"the connection is cut": iotest.ErrReader(errors.New("the connection is cut")),
		"decoding an object: ":  strings.NewReader(`{"kind":5}`),
	} {
		g := NewWithT(t)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
		g.Expect(err).NotTo(HaveOccurred())
		response, err := kinds(t).Wrap(streamed{io.NopCloser(body)}).RoundTrip(request)
		g.Expect(err).To(MatchError(HavePrefix("reading the answer to /apis/nvidia.com/v1/clusterpolicies: " + want)))
		g.Expect(response).To(BeNil())
	}
}

// A stream that ends within an event is an error that clients repeat the watch after.
func TestACutWatchIsAnError(t *testing.T) {
	g := NewWithT(t)
	client := http.Client{Transport: kinds(t).Wrap(answering(`{"type":"ADDED","object":{"kind"`))}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path+"?watch=1", nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	_, err = io.ReadAll(response.Body)
	g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
}

// answering is a transport with this answer.
type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(a))),
	}, nil
}
