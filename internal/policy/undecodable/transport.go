package undecodable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Wrap returns a transport whose answers have no field that cannot be decoded, for the kinds. It is made for
// rest.Config.Wrap.
func (k Kinds) Wrap(next http.RoundTripper) http.RoundTripper {
	groups := sets.New[string]()
	for kind := range k {
		groups.Insert(kind.Group)
	}
	return transport{kinds: k, groups: groups, next: next}
}

type transport struct {
	kinds  Kinds
	groups sets.Set[string]
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices || !t.groups.Has(groupOf(request.URL.Path)) ||
		!strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		return response, err
	}
	if isWatch(request) {
		response.Body = &stream{kinds: t.kinds, body: response.Body, in: json.NewDecoder(response.Body)}
		return response, nil
	}
	text, err := readAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", request.URL.Path, err)
	}
	if text, err = t.kinds.sanitizeAnswer(text); err != nil {
		return nil, fmt.Errorf("reading the answer to %s: %w", request.URL.Path, err)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	response.Header.Del("Content-Length")
	return response, nil
}

// groupOf returns the group of the API in a path, empty if it has none.
func groupOf(path string) string {
	// Where the API server is behind a path of a proxy, that comes first.
	_, rest, _ := strings.Cut(path, "/apis/")
	group, _, _ := strings.Cut(rest, "/")
	return group
}

func isWatch(request *http.Request) bool {
	value := request.URL.Query().Get("watch")
	return value == "true" || value == "1"
}

func readAll(body io.ReadCloser) ([]byte, error) {
	text, err := io.ReadAll(body)
	if closed := body.Close(); err == nil {
		err = closed
	}
	return text, err
}

// sanitizeAnswer is Sanitize for an object or a list. What is no JSON object is left to the client.
func (k Kinds) sanitizeAnswer(text []byte) ([]byte, error) {
	list := fieldsOf(text)
	var items []json.RawMessage
	if list["items"] != nil {
		_ = json.Unmarshal(list["items"], &items) // Without items it is an object.
	}
	if items == nil {
		if list == nil {
			return text, nil
		}
		sanitized, _, err := k.Sanitize(text)
		return sanitized, err
	}
	changed := false
	for i := range items {
		sanitized, _, err := k.Sanitize(items[i])
		if err != nil {
			return nil, err
		}
		changed = changed || !bytes.Equal(sanitized, items[i])
		items[i] = sanitized
	}
	if !changed {
		return text, nil
	}
	var err error
	if list["items"], err = json.Marshal(items); err != nil {
		return nil, fmt.Errorf("encoding a list: %w", err)
	}
	return json.Marshal(list)
}

// fieldsOf returns the fields of a JSON object; nil for what is none.
func fieldsOf(text []byte) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(text, &fields) != nil {
		return nil
	}
	return fields
}

// stream is the answer to a watch: one event after another.
type stream struct {
	kinds Kinds
	body  io.Closer
	in    *json.Decoder
	// ready are the bytes that are not read yet.
	ready bytes.Buffer
}

// Read implements io.Reader.
func (s *stream) Read(into []byte) (int, error) {
	for s.ready.Len() == 0 {
		var event json.RawMessage
		if err := s.in.Decode(&event); err != nil {
			return 0, err
		}
		sanitized, err := s.kinds.SanitizeEvent(event)
		if err != nil {
			return 0, err
		}
		s.ready.Write(sanitized)
		s.ready.WriteByte('\n')
	}
	return s.ready.Read(into)
}

// Close implements io.Closer.
func (s *stream) Close() error { return s.body.Close() }

// SanitizeEvent is Sanitize for the object in an event of a watch.
func (k Kinds) SanitizeEvent(event []byte) ([]byte, error) {
	fields := fieldsOf(event)
	if fields["object"] == nil {
		return event, nil
	}
	sanitized, _, err := k.Sanitize(fields["object"])
	if err != nil {
		return nil, err
	}
	fields["object"] = sanitized
	return json.Marshal(fields)
}
