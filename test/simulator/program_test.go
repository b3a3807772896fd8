package simulator

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReadProgram(t *testing.T) {
	tests := map[string]struct {
		command, args []string
		want          program
	}{
		"understands a list of markers":        {command: []string{"/usr/bin/gpu-node"}, args: []string{"wait", "--for=driver,toolkit"}, want: program{verbWait, []string{"driver", "toolkit"}}},
		"understands a flag given twice":       {command: []string{"gpu-node", "wait", "--for", "driver", "--for=plugin"}, want: program{verbWait, []string{"driver", "plugin"}}},
		"takes what is validated":              {command: []string{"/x/gpu-node"}, args: []string{"validate", "driver", "--host-root=/host"}, want: program{verbValidate, []string{"driver"}}},
		"stops at another program's arguments": {command: []string{"/x/gpu-node", "exec", "--", "run", "--marker=toolkit"}, want: program{verbExec, []string{"driver"}}},
		"knows another program by its name":    {command: []string{"sh", "-c", "gpu-node wait --for=driver"}},
		"knows nothing of an image's default":  {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := readProgram(corev1.Container{Command: test.command, Args: test.args})
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
