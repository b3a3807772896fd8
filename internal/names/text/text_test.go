package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

func TestTruncate(t *testing.T) {
	for length := range 12 {
		got := text.Truncate("ab日本語", length+3)
		if len(got) > length+3 || !utf8.ValidString(got) {
			t.Errorf("cut to %d: %q", length+3, got)
		}
	}
	if got := text.Truncate("exact", 5); got != "exact" {
		t.Errorf("got %q", got)
	}
	if got := text.Truncate("ab日本語", 9); got != "ab日..." {
		t.Errorf("got %q", got)
	}
	if got := text.Truncate("\xa4\xa4\xa4\xa4\xa4\xa4", 5); got != "..." {
		t.Errorf("got %q of a text without a first byte", got)
	}
}

func TestClip(t *testing.T) {
	for length, want := range map[int]string{0: "", 2: "ab", 4: "ab", 5: "ab日", 10: "ab日本", 11: "ab日本語", 12: "ab日本語"} {
		if got := text.Clip("ab日本語", length); got != want {
			t.Errorf("cut to %d: %q, want %q", length, got, want)
		}
	}
	if got := text.Clip("a\xff", 2); got != "a\xff" {
		t.Errorf("a text that fits became %q", got)
	}
}

func TestJoin(t *testing.T) {
	tests := map[string][]string{"": {"", ""}, "a": {"a", ""}, "b": {"", "b"}, "a: b: c": {"a", "b", "", "c"}}
	for want, parts := range tests {
		if got := text.Join(parts...); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestTruncateBegin(t *testing.T) {
	for long, want := range map[string]string{
		"": "", "one two": "one two", "0123456789": "0123456789",
		"one two three": "... three", "0123456789ab": "... 6789ab", "ééééééé": "... ééé",
	} {
		if got := text.TruncateBegin(long, 10); got != want {
			t.Errorf("TruncateBegin(%q) = %q, want %q", long, got, want)
		}
	}
}

func TestList(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c and more": {"a", "b", "c", "d"},
	} {
		if got := text.List(names); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b": {"a", "b"}, "a, b and 2 more": {"a", "b", "c", "d"},
	} {
		if got := text.Named(names, 2); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJoinWithin(t *testing.T) {
	long := "wrapped in much: no space left"
	for name, test := range map[string]struct {
		message, detail string
		most            int
		want            string
	}{
		"fits":                      {"container a", "no space", 21, "container a: no space"},
		"only a message":            {"container a has failed", "", 14, "container a..."},
		"only a detail":             {"", "container a has failed", 14, "container a..."},
		"a long detail":             {"container a", long, 31, "container a: ... no space left"},
		"a long message":            {"container a has failed", "no space left", 27, "container...: no space left"},
		"both are long":             {"container a has failed", long, 40, "container a has fa...: ... no space left"},
		"the detail keeps its half": {strings.Repeat("a", 50), long, 40, strings.Repeat("a", 18) + "...: ... no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			got := text.JoinWithin(test.message, test.detail, test.most)
			if got != test.want || len(got) > test.most {
				t.Errorf("%q of %d bytes, want %q", got, len(got), test.want)
			}
		})
	}
}
