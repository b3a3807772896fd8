package main

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

// The exit codes are those of kubectl diff, and each field is shown before and after.
func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		spec, flag  string
		code        int
		out, errOut string
	}{
		"nothing": {installedSpec, "", 0,
			`(?s)^Nothing changes\.\n\nThe operator would change no object: all \d+ stay as they are\.\n$`, `^$`},
		"only the policy": {`{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true, maxParallelUpgrades: 7}}}`, "", 1,
			`(?s)^Only the policy changes\.\n.*maxParallelUpgrades.*` +
				`The operator would change no object: all \d+ stay as they are\.\n$`, `^$`},
		"another driver": {upgradedSpec, "", 1, `(?s)^1 node restarts its driver.*` +
			`ClusterPolicy cluster-policy\n  - spec\.driver\.version: "580\.1"\n` +
			`  \+ spec\.driver\.version: "580\.2"\n` +
			`update DaemonSet nvidia-driver-daemonset \(driver\): 4 pods outdated, replaced by driver upgrades\n` +
			`  - spec\.template\.spec\.containers\[nvidia-driver-ctr\]\.image: "\S+:580\.1-ubuntu24\.04"\n` +
			`  \+ spec\.template\.spec\.containers\[nvidia-driver-ctr\]\.image: "\S+:580\.2-ubuntu24\.04"\n`, `^$`},
		"an operand is removed": {`{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
			dcgmExporter: {enabled: false}}`, "", 1,
			`delete DaemonSet nvidia-dcgm-exporter \(dcgm-exporter\): 4 pods removed\n` +
				`(?s).*4 pods replaced or removed on 4 nodes\. Driver upgrades on 0 nodes\.`, `^$`},
		"for programs": {upgradedSpec, "-o=json", 1,
			`(?s)"spec": \[\s+\{\s+"path": "spec\.driver\.version",\s+"before": "580\.1"`,
			`^$`},
		"an invalid policy": {`{driver: {image: "example.com/driver:1", version: "2"}}`, "", 2, ``,
			`the policy is invalid for driver`},
		"a misspelt field": {`{drivers: {}}`, "", 2, `^$`, `unknown field "spec.drivers"`},
		"a wrong format":   {installedSpec, "-o=xml", 2, `^$`, `--output xml`},
	} {
		t.Run(name, func(t *testing.T) {
			g, args := NewWithT(t), []string{"diff", "-f", "-", "--against", installed(t)}
			if test.flag != "" {
				args = append(args, test.flag)
			}
			got := kubectlGPU(edit(test.spec), args...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.out).To(MatchRegexp(test.out))
			g.Expect(got.errOut).To(MatchRegexp(test.errOut))
		})
	}
	NewWithT(t).Expect(kubectlGPU("", "diff").code).To(Equal(2), "a file is required")
}

// What the documentation shows of diff is what it prints.
func TestTheSampleOfDiffIsReal(t *testing.T) {
	g := NewWithT(t)
	docs, err := os.ReadFile("../../docs/kubectl-gpu.md")
	g.Expect(err).NotTo(HaveOccurred())
	got := kubectlGPU(edit(`{driver: {version: "580.1", upgradePolicy: {autoUpgrade: true}},
		devicePlugin: {env: [{name: FAIL_ON_INIT_ERROR, value: "false"}]}}`), "diff", "-f", "-", "--against", installed(t))
	g.Expect(got.code).To(Equal(1), got.errOut)
	g.Expect(string(docs)).To(ContainSubstring("```\n" + got.out + "```\n"))
}
