package digest_test

import (
	"io"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
)

// An upgraded operator compares its digests with those that the previous release has stored.
func TestDigestsAreStable(t *testing.T) {
	for content, want := range map[string]string{
		"":                           "e3b0c44298fc1c14",
		"ubuntu24.04-amd64":          "8cb6a49678e76930",
		`{"kind":"DaemonSet"}` + "ü": "cdd085b35cd5c205",
	} {
		if got := digest.Of(content); got != want {
			t.Errorf("text %q has digest %s, want %s", content, got, want)
		}
		if got := digest.Of([]byte(content)); got != want {
			t.Errorf("bytes %q have digest %s, want %s", content, got, want)
		}
		written := digest.New()
		for _, part := range []string{content[:len(content)/2], content[len(content)/2:]} {
			if n, err := io.WriteString(written, part); n != len(part) || err != nil {
				t.Errorf("wrote %d bytes of %q: %v", n, part, err)
			}
		}
		if got := written.String(); got != want {
			t.Errorf("%q in two parts has digest %s, want %s", content, got, want)
		}
	}
}
