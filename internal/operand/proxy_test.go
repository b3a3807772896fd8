package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestProxyOfTheEnvironment(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		want v1.ProxySpec
	}{
		"none": {},
		"all": {
			map[string]string{"HTTP_PROXY": "http://a", "HTTPS_PROXY": "http://b", "NO_PROXY": ".svc"},
			v1.ProxySpec{HTTPProxy: "http://a", HTTPSProxy: "http://b", NoProxy: ".svc"},
		},
		"HTTPS alone":      {map[string]string{"HTTPS_PROXY": "http://b"}, v1.ProxySpec{HTTPSProxy: "http://b"}},
		"exceptions alone": {map[string]string{"NO_PROXY": ".svc"}, v1.ProxySpec{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := operand.ProxyFromVariables(func(name string) string { return test.env[name] })
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}
