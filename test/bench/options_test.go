package main

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestParseOptions(t *testing.T) {
	// All phases except the one whose runs alternate.
	realisticPhases := []string{
		"install", "idle", "pass", "pod", "label", "crash", "broken", "join", "joins", "overdue", "discovery", "restart",
		"outage", "floor", "bare", "latency",
	}
	for name, test := range map[string]struct {
		args []string
		want options
		// wantErr is part of the error message.
		wantErr string
	}{
		"nothing set": {want: options{
			nodes: []int{100, 1000}, only: realisticPhases, timeout: 15 * time.Minute, docs: "docs/benchmarks.md",
			cache: ".cache/bench",
		}},
		"all set": {
			args: []string{"-nodes=5000, 10", "-only=floor,install", "-strict", "-timeout=3m", "-docs=", "-cache=/tmp/x"},
			want: options{
				nodes: []int{5000, 10}, only: []string{"floor", "install"}, strict: true, timeout: 3 * time.Minute, cache: "/tmp/x",
			},
		},
		"a short soak": {
			args: []string{"-nodes=10", "-only=soak", "-soak=0.05", "-docs=", "-cache="},
			want: options{nodes: []int{10}, only: []string{"soak"}, soak: 0.05, timeout: 15 * time.Minute},
		},
		"a driver that takes another time": {
			args: []string{"-nodes=10", "-only=latency", "-driver-seconds=5", "-docs=", "-cache="},
			want: options{
				nodes: []int{10}, only: []string{"latency"}, driverTakes: 5 * time.Second, timeout: 15 * time.Minute,
			},
		},
		"a driver that takes no time": {args: []string{"-driver-seconds=0"}, wantErr: "-driver-seconds: want a number"},
		"a soak that is too long":     {args: []string{"-soak=1.5"}, wantErr: "-soak: want a number up to 1"},
		"fast stages": {
			args: []string{"-nodes=100", "-stages=fast", "-repeat=2"},
			want: options{
				nodes: []int{100}, stages: fast, repeat: 2, only: []string{"compare"}, timeout: 15 * time.Minute,
				docs: "docs/benchmarks.md", cache: ".cache/bench",
			},
		},
		"delayed stages on an untuned control plane": {
			args: []string{"-nodes=100", "-stages=delayed", "-control-plane=default"},
			want: options{
				nodes: []int{100}, stages: delayed, plane: untuned, only: []string{"compare"}, timeout: 15 * time.Minute,
				docs: "docs/benchmarks.md", cache: ".cache/bench",
			},
		},
		"a minimal control plane": {
			args: []string{"-nodes=5000", "-control-plane=minimal"},
			want: options{
				nodes: []int{5000}, plane: minimal,
				only:    []string{"install", "idle", "pass", "pod", "label", "join", "joins", "restart"},
				timeout: 15 * time.Minute, docs: "docs/benchmarks.md", cache: ".cache/bench",
			},
		},
		"fast stages on a minimal control plane": {
			args: []string{"-stages=fast", "-control-plane=minimal"}, wantErr: "-control-plane=minimal: only the sample policy",
		},
		"a phase that needs a whole control plane": {
			args: []string{"-control-plane=minimal", "-only=crash"}, wantErr: `there is no phase "crash": want some of install`,
		},
		"another policy": {
			args: []string{"-nodes=100", "-policy=x/nfd.yaml"},
			want: options{
				nodes: []int{100}, policy: "x/nfd.yaml", only: []string{"compare"}, timeout: 15 * time.Minute,
				docs: "docs/benchmarks.md", cache: ".cache/bench",
			},
		},
		"a phase with the sample policy": {
			args: []string{"-policy=x/nfd.yaml", "-only=idle"}, wantErr: `there is no phase "idle": want some of compare`,
		},
		"another operator": {
			args: []string{"-nodes=100", "-other=/x/manager", "-other-policy=p.yaml", "-other-version=another 1.0"},
			want: options{
				nodes: []int{100}, only: []string{"compare"}, timeout: 15 * time.Minute, docs: "docs/benchmarks.md",
				cache: ".cache/bench",
				other: otherOperator{program: "/x/manager", policy: "p.yaml", version: "another 1.0"},
			},
		},
		"NVIDIA's operator": {
			args: []string{"-nodes=100", "-other=pinned"},
			want: options{
				nodes: []int{100}, only: []string{"compare"}, timeout: 15 * time.Minute, docs: "docs/benchmarks.md",
				cache: ".cache/bench",
				other: otherOperator{program: "pinned"},
			},
		},
		"NVIDIA's operator with another policy": {
			args: []string{"-other=pinned", "-other-policy=p.yaml"}, wantErr: "-other=pinned: the other flags",
		},
		"another operator without its policy": {
			args: []string{"-other=/x/manager", "-other-version=1.0"}, wantErr: "want -other-policy and -other-version, too",
		},
		"the environment of no operator": {args: []string{"-other-env=x"}, wantErr: "-other is missing"},
		"a phase that does not measure another operator": {
			args:    []string{"-other=/x", "-other-policy=p", "-other-version=1", "-only=idle"},
			wantErr: `there is no phase "idle": want some of compare`,
		},
		"no such control plane": {
			args: []string{"-control-plane=x"}, wantErr: "-control-plane=x: want tuned, default or minimal",
		},
		"the comparison with realistic stages": {
			args: []string{"-nodes=100", "-stages=realistic", "-only=compare"},
			want: options{
				nodes: []int{100}, only: []string{"compare"}, timeout: 15 * time.Minute, docs: "docs/benchmarks.md",
				cache: ".cache/bench",
			},
		},
		"no such stages": {args: []string{"-stages=slow"}, wantErr: "-stages=slow: want realistic, fast or delayed"},
		"no fast phase": {
			args: []string{"-stages=fast", "-only=idle"}, wantErr: `there is no phase "idle": want some of compare`,
		},
		"never":              {args: []string{"-repeat=-1"}, wantErr: "-repeat: want a number from 1 on"},
		"too few nodes":      {args: []string{"-nodes=9"}, wantErr: "-nodes=9: want numbers from 10 on"},
		"nodes not a number": {args: []string{"-nodes=many"}, wantErr: "-nodes=many: want numbers"},
		"no such phase": {
			args: []string{"-only=install,lunch"}, wantErr: `there is no phase "lunch": want some of install, idle`,
		},
		"no time":         {args: []string{"-timeout=0s"}, wantErr: "-timeout: want a duration above 0"},
		"an argument":     {args: []string{"install"}, wantErr: `unknown argument "install"`},
		"an unknown flag": {args: []string{"-fast"}, wantErr: "flag provided but not defined: -fast"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var printed bytes.Buffer
			got, err := parseOptions(test.args, &printed)
			if test.wantErr != "" {
				g.Expect(err).To(HaveOccurred())
				g.Expect(printed.String()).To(ContainSubstring(test.wantErr))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			test.want.driverTakes = cmp.Or(test.want.driverTakes, time.Minute)
			test.want.policy = cmp.Or(test.want.policy, "config/samples/clusterpolicy.yaml")
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestRepeatsFollowTheSize(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&options{}).repeatsAt(100)).To(Equal(5))
	g.Expect((&options{}).repeatsAt(101)).To(Equal(3))
	g.Expect((&options{repeat: 2}).repeatsAt(1000)).To(Equal(2))
}
