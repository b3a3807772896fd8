package app

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestMetricsFlags(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	incomplete := t.TempDir()
	if err := os.WriteFile(filepath.Join(incomplete, "tls.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options metricsOptions
		want    operand.MetricsEndpoint
		wantErr string
	}{
		"HTTPS": {options: metricsOptions{secure: true}},
		"plain": {want: operand.MetricsEndpoint{Plain: true}},
		"a certificate": {
			options: metricsOptions{secure: true, certDir: dir}, want: operand.MetricsEndpoint{Certified: true},
		},
		"a certificate and its CA": {
			options: metricsOptions{secure: true, certDir: dir, caSecret: "tls"},
			want:    operand.MetricsEndpoint{Certified: true, CASecret: "tls"},
		},
		"plain, and a certificate": {options: metricsOptions{certDir: dir}, wantErr: "or remove --metrics-secure=false"},
		"plain, and a CA": {
			options: metricsOptions{caSecret: "tls"}, wantErr: "or remove --metrics-secure=false",
		},
		"a CA without a certificate": {
			options: metricsOptions{secure: true, caSecret: "tls"}, wantErr: "set without --metrics-cert-dir",
		},
		"a certificate without its key": {
			options: metricsOptions{secure: true, certDir: incomplete},
			wantErr: "has no usable tls.key: no such file or directory: mount the Secret",
		},
		"a missing directory": {
			options: metricsOptions{secure: true, certDir: "/nowhere"},
			wantErr: "--metrics-cert-dir=/nowhere has no usable tls.crt",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := test.options.check()
			if test.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(test.options.endpoint()).To(Equal(test.want))
		})
	}
}
