package readiness_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

func TestLastLine(t *testing.T) {
	for name, test := range map[string]struct{ message, want string }{
		"none":                            {"", ""},
		"only empty lines":                {"\n \n\r\n\t\n", ""},
		"a reason of gpu-node":            {"driver-ready is missing\n", "driver-ready is missing"},
		"the last of several":             {"starting\nlistening\n\n", "listening"},
		"the error before the cleaning":   {"ERROR: no headers\nunloading\nunmounting\n", "ERROR: no headers"},
		"the last of several errors":      {"error: a\nerror: b\nbye\n", "error: b"},
		"an error of klog without a word": {"E1123 09:18:39.123456       1 main.go:132] no devices\nbye", "no devices"},
		"the time of klog":                {"I1123 09:18:39.123456       1 main.go:132] bye", "bye"},
		"the time of logrus": {`time="2026-11-23T09:18:39Z" level=error msg="no GPU"`,
			`level=error msg="no GPU"`},
		"a time in ISO 8601":    {"2026-11-23T09:18:39.5+01:00 cannot start", "cannot start"},
		"a time of package log": {"2026/11/23 09:18:39 cannot start", "cannot start"},
		"an exception": {"Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: bad\n",
			"ValueError: bad"},
		"a panic": {"panic: no GPU\n\ngoroutine 1 [running]:\ngithub.com/pkg/errors.New()\n\t/errors.go:1\nexit status 2",
			"panic: no GPU"},
		"colours":            {"\x1b[1;31mfatal:\x1b[0m no GPU\x1b[K\n", "fatal: no GPU"},
		"a title":            {"\x1b]0;title\x07no GPU", "no GPU"},
		"a progress bar":     {"10 %\r20 %\rfailed at 20 %", "failed at 20 %"},
		"control characters": {"a\x00b\tc\x08d\x7f", "ab cd"},
		"a hidden reversal":  {"abc\u202edef\u200b", "abcdef"},
		"bytes":              {"no \xff\xfe GPU", "no ? GPU"},

		"a password": {"cannot log in with DB_PASSWORD=hunter2 as root",
			"cannot log in with DB_PASSWORD=[redacted] as root"},
		"a quoted token": {`failed: registry-token="a b" x`, `failed: registry-token=[redacted] x`},
		"a key in JSON":  {`failed: {"api_key": "abc", "node": "n1"}`, `failed: {"api_key": [redacted], "node": "n1"}`},
		"a header":       {"error: Authorization: Bearer abcdefghijklmnop0123", "error: Authorization: Bearer [redacted]"},
		"a URL":          {"error: GET https://user:pa55@example.com/v2", "error: GET https://[redacted]@example.com/v2"},
		"a cut URL": {"error: GET https://user:pa55",
			"error: GET https://user:[redacted]"},
		"a URL and port":   {"error: GET https://example.com:443", "error: GET https://example.com:443"},
		"a service token":  {"denied: eyJhbGciOi.eyJzdWIi.c2ln", "denied: [redacted]"},
		"the query of URL": {"error: https://example.com/?token=abc&x=1", "error: https://example.com/?token=[redacted]&x=1"},
		"a dump of the environment": {"error: no GPU\nNGC_KEY=abc-error\nexport HOME=/root\ndeclare -x A=\"fatal\"\n",
			"error: no GPU"},
		"nothing but a dump": {"NGC=abc\nHOME=/root\n", ""},

		"a missing file of a token": {"open /var/run/secrets/token: no such file",
			"open /var/run/secrets/token: no such file"},
		"a missing Secret":       {`secret "ngc" not found`, `secret "ngc" not found`},
		"an ordinary assignment": {"error: memory=2Gi is too little", "error: memory=2Gi is too little"},
		"a word after basic":     {"cannot start with basic functionality", "cannot start with basic functionality"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := readiness.LastLine(test.message)
			g.Expect(got).To(Equal(test.want))
			g.Expect(readiness.LastLine(got)).To(Equal(got), "a line is its own last line")
		})
	}
}

func TestLastLineIsBounded(t *testing.T) {
	g := NewWithT(t)
	long := readiness.LastLine(strings.Repeat("日本語", 500))
	g.Expect(len(long)).To(And(BeNumerically("<=", 300), BeNumerically(">", 200)))
	g.Expect(utf8.ValidString(long)).To(BeTrue())
	g.Expect(long).To(ContainSubstring("語 ... "))
	g.Expect(readiness.LastLine(long)).To(Equal(long))
	// A secret at a cut is redacted before the line is shortened.
	for _, at := range []int{85, 95, 100, 285, 4090} {
		secret := strings.Repeat("x", at) + " token=abcdefghijklmnop"
		g.Expect(readiness.LastLine(secret)).NotTo(ContainSubstring("abc"))
		g.Expect(readiness.LastLine(secret + strings.Repeat(" y", 150))).NotTo(MatchRegexp("abc|nop"))
	}
}

// A program written in Go says last what has failed.
func TestLastLineHasTheCauseOfALongChain(t *testing.T) {
	g := NewWithT(t)
	chain := "E1123 09:18:39.1 1 main.go:188] error starting plugins: " + strings.Repeat("error visiting device: ", 20)
	got := readiness.LastLine(chain + "more than one MIG device type present on node")
	g.Expect(got).To(And(HavePrefix("error starting plugins: error visiting device: "),
		MatchRegexp(` \.\.\. (error|visiting|device:) `),
		HaveSuffix("error visiting device: more than one MIG device type present on node")))
	g.Expect(len(got)).To(BeNumerically("<=", 300))
}

// A container may log anything.
func FuzzLastLine(f *testing.F) {
	for _, seed := range []string{"", "a\nb", "\x1b[31mERROR\x1b[0m", "token=\"", "\xff", "E1123 09:18:39.1 1 a.go:1] x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		got := readiness.LastLine(message)
		if len(got) > 300 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\x00") {
			t.Errorf("%q of %q", got, message)
		}
	})
}
