package main

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/cli/explain"
)

// operandPods are pods of the operator: one that has crashed and runs again, one that waits in an init container, one
// that has not run, and one that is ready.
func operandPods() [][]byte {
	pod := func(operand, status string) []byte {
		return fmt.Appendf(nil, `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s-x, namespace: gpus, labels: {
			app.kubernetes.io/managed-by: gpu-operator, nvidia.com/gpu-operator.operand: %[1]s}},
			spec: {nodeName: a}, status: {%[2]s}}`, operand, status)
	}
	return [][]byte{
		[]byte(`{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, status: {namespace: gpus}}`),
		pod("driver", `containerStatuses: [{name: nvidia-driver-ctr, state: {running: {}},
			lastState: {terminated: {exitCode: 1}}}]`),
		pod("container-toolkit", `initContainerStatuses: [{name: wait, state: {running: {}}}]`),
		pod("dcgm", `containerStatuses: [{name: main, state: {waiting: {reason: ErrImagePull}}}]`),
		pod("device-plugin", `conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: main, ready: true,
			state: {running: {}}}]`),
	}
}

// The log is that of the container which explains the state of the operand; flags choose another one.
func TestLogs(t *testing.T) {
	server := newAPIServer(t, operandPods()...)
	server.logs = map[string]string{
		"driver-x?container=nvidia-driver-ctr&previous=true":             "crash\n",
		"driver-x?container=nvidia-driver-ctr":                           "now\n",
		"driver-x?container=nvidia-driver-ctr&follow=true":               "follows\n",
		"driver-x?container=nvidia-driver-ctr&previous=true&tailLines=1": "last\n",
		"driver-x?container=peermem":                                     "peer\n",
		"container-toolkit-x?container=wait":                             "waits\n",
		"device-plugin-x?container=main":                                 "plugin\n",
		"device-plugin-x?container=main&previous=true":                   "before\n",
	}
	config := server.kubeconfig(t)
	for args, test := range map[string]struct {
		out, err string
		code     int
	}{
		"driver":                  {out: "crash\n"},
		"driver --previous=false": {out: "now\n"},
		"driver --follow":         {out: "follows\n"},
		"driver --tail 1":         {out: "last\n"},
		"driver -c peermem":       {out: "peer\n"},
		"container-toolkit":       {out: "waits\n"},
		"device-plugin":           {out: "plugin\n"},
		"device-plugin -p":        {out: "before\n"},
		"driver --follow -p":      {code: 2, err: "--follow and --previous cannot be used together"},
		"dcgm": {code: 1,
			err: "no container of pod dcgm-x has run yet: see kubectl -n gpus describe pod dcgm-x\n"},
		"none": {code: 1,
			err: "node a has no pod of operand none: give one of container-toolkit, dcgm, device-plugin, driver\n"},
		"--follow":                  {code: 1, err: "give one of container-toolkit, dcgm, driver with --follow\n"},
		"--operator-namespace none": {code: 1, err: "node a has no pod of the operator: see kubectl gpu explain a\n"},
	} {
		t.Run(args, func(t *testing.T) {
			g := NewWithT(t)
			got := kubectlGPU("", append([]string{"logs", "a", "--kubeconfig", config, "--context", "c"},
				strings.Fields(args)...)...)
			g.Expect(got.code).To(Equal(test.code), got.errOut)
			g.Expect(got.out).To(Equal(test.out))
			g.Expect(got.errOut).To(ContainSubstring(test.err))
		})
	}
}

// Without an operand the logs of all are printed that are not ready, each under its command.
func TestLogsOfANode(t *testing.T) {
	g := NewWithT(t)
	server := newAPIServer(t, operandPods()[:4]...)
	server.logs = map[string]string{
		"driver-x?container=nvidia-driver-ctr&previous=true": "crash\n", "container-toolkit-x?container=wait": "waits\n",
	}
	logs := func() output {
		return kubectlGPU("", "logs", "a", "--kubeconfig", server.kubeconfig(t), "--context", "c")
	}
	got := logs()
	g.Expect(got.code).To(BeZero(), got.errOut)
	g.Expect(got.out).To(Equal("==> kubectl -n gpus logs container-toolkit-x -c wait <==\nwaits\n" +
		"==> kubectl -n gpus logs driver-x -c nvidia-driver-ctr --previous <==\ncrash\n" +
		"==> no container of pod dcgm-x has run yet: see kubectl -n gpus describe pod dcgm-x <==\n"))
	server.objects = newAPIServer(t, operandPods()[0], operandPods()[4]).objects
	g.Expect(logs().errOut).To(Equal(
		"kubectl gpu: all pods of the operator on node a are ready: give an operand, one of device-plugin\n"))
	server.refused = true
	g.Expect(logs().errOut).To(HavePrefix("kubectl gpu: Error from server (Forbidden): refused\n"))
}

// An explanation has the last lines of a log, of a bounded length, and none if it cannot be read.
func TestLogsOfFindings(t *testing.T) {
	g, server := NewWithT(t), newAPIServer(t)
	long := strings.Repeat("x", loggedBytes)
	server.logs = map[string]string{
		"p?container=a&previous=true&tailLines=5": "\x1b[31mone\x1b[0m\ntwo\a\n",
		"p?container=long&tailLines=5":            "y" + long + "\n",
	}
	read := func(log *explain.Log) []string {
		log.Namespace, log.Pod = "n", "p"
		findings := []explain.Finding{{}, {Log: log}}
		readLogs(t.Context(), server.session(t), findings)
		return findings[1].Log.Lines
	}
	g.Expect(read(&explain.Log{Container: "a", Previous: true})).To(Equal([]string{"one", "two"}))
	g.Expect(read(&explain.Log{Container: "empty"})).To(BeEmpty())
	g.Expect(len(read(&explain.Log{Container: "long"})[0])).To(BeNumerically("<=", loggedBytes))
	server.refused = true
	g.Expect(read(&explain.Log{Container: "a", Previous: true})).To(BeEmpty())
	text := nodeText(&explain.Node{Findings: []explain.Finding{{
		Reason: "R", Message: "m", Next: "n", Commands: []string{"kubectl x"},
		Log: &explain.Log{Lines: []string{"one", "two"}},
	}}})
	g.Expect(text).To(ContainSubstring("R: m\n  Next:  n\n  Run:   kubectl x\n  Log:   one\n         two\n"))
}

// A pod that the scheduler has not placed yet has its node in the affinity alone.
func TestStackOnHasPendingPods(t *testing.T) {
	g := NewWithT(t)
	pod := func(name, spec string) []byte {
		return fmt.Appendf(nil, `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: gpus}, spec: {%s}}`, name, spec)
	}
	of := func(node string) string {
		return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
			{matchFields: [{key: metadata.name, operator: In, values: [` + node + `]}]}]}}}`
	}
	server := newAPIServer(t,
		pod("runs", "nodeName: a"), pod("waits", of("a")), pod("elsewhere", of("b")), pod("other", ""))
	found, err := stackOn(t.Context(), server.session(t), "gpus", "a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveExactElements(HaveField("Name", "runs"), HaveField("Name", "waits")))
	server.refused = true
	found, err = stackOn(t.Context(), server.session(t), "gpus", "a")
	g.Expect(err).To(HaveOccurred())
	g.Expect(found).To(BeNil())
}
