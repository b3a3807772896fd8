package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

func TestParseOptions(t *testing.T) {
	crash := []fault{{"driver", "gpu-00003", simulator.CrashLoop}}
	for name, test := range map[string]struct {
		env  map[string]string
		want options
		// wantErr is part of the error.
		wantErr string
	}{
		"nothing set": {want: options{nodes: 8, timeout: 5 * time.Minute}},
		"all set": {
			env:  map[string]string{"NODES": "4", "EXIT": "1", "TIMEOUT": "90s", "BREAK": "driver:gpu-00003"},
			want: options{nodes: 4, exit: true, timeout: 90 * time.Second, faults: crash},
		},
		"a real node": {
			env: map[string]string{"REAL": "1"}, want: options{nodes: 8, timeout: 5 * time.Minute, real: true},
		},
		"a tour": {
			env: map[string]string{"TOUR": "1"},
			want: options{
				nodes: 4, exit: true, tour: true, faults: []fault{{"driver", "gpu-00001", simulator.CrashLoop}},
			},
		},
		"a tour of other nodes": {
			env: map[string]string{"TOUR": "1", "NODES": "8"}, wantErr: "NODES=8: leave it out with TOUR=1",
		},
		"bad TOUR":           {env: map[string]string{"TOUR": "grand"}, wantErr: "TOUR=grand: want 1"},
		"bad REAL":           {env: map[string]string{"REAL": "maybe"}, wantErr: "REAL=maybe: want 1"},
		"EXIT=0 stays":       {env: map[string]string{"EXIT": "0"}, want: options{nodes: 8, timeout: 5 * time.Minute}},
		"no nodes":           {env: map[string]string{"NODES": "0"}, wantErr: "NODES=0: want a positive number"},
		"negative nodes":     {env: map[string]string{"NODES": "-3"}, wantErr: "NODES=-3: want a positive number"},
		"nodes not a number": {env: map[string]string{"NODES": "eight"}, wantErr: "NODES=eight: want a positive number"},
		"bad EXIT":           {env: map[string]string{"EXIT": "soon"}, wantErr: "EXIT=soon: want 1"},
		"no unit":            {env: map[string]string{"TIMEOUT": "60"}, wantErr: "TIMEOUT=60: want a duration"},
		"negative time":      {env: map[string]string{"TIMEOUT": "-1s"}, wantErr: "TIMEOUT=-1s: want a duration"},
		"several faults with modes": {
			env: map[string]string{"BREAK": "driver:gpu-00003, device-plugin:gpu-00000:NeverReady"},
			want: options{nodes: 8, timeout: 5 * time.Minute, faults: []fault{
				crash[0], {"device-plugin", "gpu-00000", simulator.NeverReady},
			}},
		},
		"no node":        {env: map[string]string{"BREAK": "driver"}, wantErr: `"driver" is not OPERAND:NODE`},
		"trailing comma": {env: map[string]string{"BREAK": "driver:gpu-00003,"}, wantErr: `"" is not OPERAND:NODE`},
		"too many parts": {
			env: map[string]string{"BREAK": "driver:gpu-00003:CrashLoop:now"}, wantErr: "is not OPERAND:NODE",
		},
		"unknown operand": {
			env:     map[string]string{"BREAK": "drivers:gpu-00003"},
			wantErr: `unknown operand "drivers", want one of container-toolkit, `,
		},
		"without pods": {
			env: map[string]string{"BREAK": "runtime-classes:gpu-00003"}, wantErr: `unknown operand "runtime-classes"`,
		},
		"node beyond": {
			env:     map[string]string{"NODES": "3", "BREAK": "driver:gpu-00003"},
			wantErr: `unknown node "gpu-00003", want one of gpu-00000 to gpu-00002`,
		},
		"shortened node":   {env: map[string]string{"BREAK": "driver:gpu-3"}, wantErr: `unknown node "gpu-3"`},
		"node without gpu": {env: map[string]string{"BREAK": "driver:00003"}, wantErr: `unknown node "00003"`},
		"unknown mode": {
			env:     map[string]string{"BREAK": "driver:gpu-00003:Crash"},
			wantErr: `unknown mode "Crash", want one of CrashLoop, ImagePull, NeverReady`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			catalogue, err := operands.Catalogue()
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseOptions(func(key string) string { return test.env[key] }, breakable(catalogue))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
