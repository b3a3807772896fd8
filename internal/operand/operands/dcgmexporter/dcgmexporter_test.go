package dcgmexporter_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/dcgmexporter"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func env(pairs ...string) v1.ContainerSpec {
	spec := v1.ContainerSpec{}
	for i := 0; i < len(pairs); i += 2 {
		spec.Env = append(spec.Env, v1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return spec
}

// The exporter can reach an engine on the host only from the host's network.
func TestHostNetwork(t *testing.T) {
	const engine = "DCGM_REMOTE_HOSTENGINE_INFO"
	off := env(engine, "localhost:5555")
	off.HostNetwork = new(false)
	tests := map[string]struct {
		container v1.ContainerSpec
		dcgm      *v1.DCGMSpec
		want      *bool
	}{
		"by default":                        {},
		"set in the spec":                   {container: v1.ContainerSpec{HostNetwork: new(true)}, want: new(true)},
		"an engine on localhost":            {container: env(engine, "localhost:5555"), want: new(true)},
		"localhost without a port":          {container: env(engine, "localhost"), want: new(true)},
		"127.0.0.1":                         {container: env(engine, "127.0.0.1:5555"), want: new(true)},
		"[::1]":                             {container: env(engine, "[::1]:5555"), want: new(true)},
		"[::1] without a port":              {container: env(engine, "[::1]"), want: new(true)},
		"an engine elsewhere":               {container: env(engine, "10.0.0.7:5555")},
		"a name that starts with localhost": {container: env(engine, "localhost.example.com:5555")},
		"an empty variable":                 {container: env(engine, "")},
		"another variable":                  {container: env("X", "localhost:5555")},
		"with the engine of the policy": {
			container: env(engine, "localhost:5555"),
			dcgm:      &v1.DCGMSpec{Enabled: new(true)},
		},
		"dcgm is off": {
			container: env(engine, "localhost:5555"),
			dcgm:      &v1.DCGMSpec{Enabled: new(false)},
			want:      new(true),
		},
		"false in the spec": {container: off, want: new(false)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
				DCGM: test.dcgm, DCGMExporter: &v1.DCGMExporterSpec{ContainerSpec: test.container},
			})}
			instances, err := dcgmexporter.Operand().Instances(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, instances[0].Container.HostNetwork); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.container.HostNetwork, in.Spec.DCGMExporter.HostNetwork); diff != "" {
				t.Errorf("the spec was changed, -want +got:\n%s", diff)
			}
		})
	}
}

// A token is stored on the node's disk, so only a pod that needs one gets it.
func TestToken(t *testing.T) {
	const configMap = "DCGM_EXPORTER_CONFIGMAP_DATA"
	tests := map[string]struct {
		spec v1.DCGMExporterSpec
		want bool
	}{
		"by default": {},
		"pod labels": {spec: v1.DCGMExporterSpec{EnablePodLabels: new(true)}, want: true},
		"pod UIDs":   {spec: v1.DCGMExporterSpec{EnablePodUID: new(true)}, want: true},
		"pod labels by the variable": {
			spec: v1.DCGMExporterSpec{ContainerSpec: env("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "true")}, want: true,
		},
		"pod UIDs by the variable": {
			spec: v1.DCGMExporterSpec{ContainerSpec: env("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "1")}, want: true,
		},
		"both are off by variables": {
			spec: v1.DCGMExporterSpec{ContainerSpec: env("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "false")},
		},
		"both are off":       {spec: v1.DCGMExporterSpec{EnablePodLabels: new(false), EnablePodUID: new(false)}},
		"an allowlist alone": {spec: v1.DCGMExporterSpec{PodLabelAllowlistRegex: []string{".*"}}},
		"metrics from a ConfigMap": {
			spec: v1.DCGMExporterSpec{ContainerSpec: env(configMap, "gpu-operator:my-metrics")},
			want: true,
		},
		"metrics from none":   {spec: v1.DCGMExporterSpec{ContainerSpec: env(configMap, "none")}},
		"a mounted ConfigMap": {spec: v1.DCGMExporterSpec{Config: &v1.DCGMExporterConfigSpec{Name: "my-metrics"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := effective.Of(v1.ClusterPolicySpec{DCGMExporter: &test.spec})
			if got := dcgmexporter.CallsAPI(spec.DCGMExporter); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The exporter may read ConfigMaps of its own namespace alone, and skips lines of the file that it does not understand.
func TestDoubtful(t *testing.T) {
	const (
		line   = "spec.dcgmExporter.config.name: ConfigMap mine, key dcgm-metrics.csv, line 2 has no type"
		prefix = "spec.dcgmExporter.env: DCGM_EXPORTER_CONFIGMAP_DATA is "
		suffix = ", but must be gpus:NAME, as the exporter may read ConfigMaps of this namespace alone"
	)
	for value, want := range map[string][]string{
		"":             {line},
		"none":         {line},
		"gpus:metrics": {line},
		"gpus:":        {line, prefix + "gpus:" + suffix},
		"gpus":         {line, prefix + "gpus" + suffix},
		"other:name":   {line, prefix + "other:name" + suffix},
	} {
		t.Run(value, func(t *testing.T) {
			in := operand.Input{
				Namespace: "gpus",
				Spec: effective.Of(v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{
					ContainerSpec: env("X", "y", "DCGM_EXPORTER_CONFIGMAP_DATA", value),
					Config:        &v1.DCGMExporterConfigSpec{Name: "mine"},
				}}),
				Contents: map[operand.Reference]operand.Content{
					{Kind: operand.ConfigMap, Name: "mine"}: {FileProblems: map[string][]string{
						"dcgm-metrics.csv": {"line 2 has no type"}, "other": {"not read"},
					}},
				},
			}
			if diff := cmp.Diff(want, dcgmexporter.Operand().Doubtful(in)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// What the spec adds to the exporter's container, and nothing else.
func TestAdditions(t *testing.T) {
	variables := func(name, value string) operand.Env { return operand.Env{{Name: name, Value: value}} }
	hostPath := corev1.HostPathVolumeSource{Path: "/jobs", Type: new(corev1.HostPathDirectoryOrCreate)}
	configMap := corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "mine"},
		Items:                []corev1.KeyToPath{{Key: "dcgm-metrics.csv", Path: "dcgm-metrics.csv"}},
	}
	for name, test := range map[string]struct {
		spec   v1.DCGMExporterSpec
		dcgm   bool
		env    operand.Env
		mount  *corev1.VolumeMount
		source corev1.VolumeSource
	}{
		"nothing by default": {},
		"the engine":         {dcgm: true, env: variables("DCGM_REMOTE_HOSTENGINE_INFO", "nvidia-dcgm:5555")},
		"labels of pods": {
			spec: v1.DCGMExporterSpec{EnablePodLabels: new(true)},
			env:  variables("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "true"),
		},
		"UIDs of pods": {
			spec: v1.DCGMExporterSpec{EnablePodUID: new(true)},
			env:  variables("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "true"),
		},
		"some labels": {
			spec: v1.DCGMExporterSpec{PodLabelAllowlistRegex: []string{"a.*", "b"}},
			env:  variables("DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "a.*,b"),
		},
		"metrics": {
			spec: v1.DCGMExporterSpec{Config: &v1.DCGMExporterConfigSpec{Name: "mine"}},
			mount: &corev1.VolumeMount{
				Name: "metrics-config", MountPath: "/etc/dcgm-exporter/dcgm-metrics.csv", SubPath: "dcgm-metrics.csv",
				ReadOnly: true,
			},
			source: corev1.VolumeSource{ConfigMap: &configMap},
		},
		"jobs": {
			spec:   v1.DCGMExporterSpec{HPCJobMapping: &v1.HPCJobMappingSpec{Enabled: new(true), Directory: "/jobs"}},
			env:    variables("DCGM_HPC_JOB_MAPPING_DIR", "/jobs"),
			mount:  &corev1.VolumeMount{Name: "hpc-job-mapping", MountPath: "/jobs", ReadOnly: true},
			source: corev1.VolumeSource{HostPath: &hostPath},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
				DCGMExporter: &test.spec, DCGM: &v1.DCGMSpec{Enabled: &test.dcgm},
			})}
			instances, err := dcgmexporter.Operand().Instances(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			added, volumes := operand.Additions{Env: test.env}, []corev1.Volume(nil)
			if test.mount != nil {
				added.Mounts = []corev1.VolumeMount{*test.mount}
				volumes = []corev1.Volume{{Name: test.mount.Name, VolumeSource: test.source}}
			}
			if diff := cmp.Diff(added, instances[0].Additions[instances[0].Main]); diff != "" {
				t.Errorf("additions, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(volumes, instances[0].Volumes); diff != "" {
				t.Errorf("volumes, -want +got:\n%s", diff)
			}
		})
	}
}

func TestListen(t *testing.T) {
	const wrong = `spec.dcgmExporter: env: DCGM_EXPORTER_LISTEN is `
	tests := map[string]struct {
		listen string
		port   int
		err    string
	}{
		"empty means the default":  {port: 9400},
		"another port":             {listen: ":9500", port: 9500},
		"an address":               {listen: "0.0.0.0:9501", port: 9501},
		"an IPv6 address":          {listen: "[::]:9502", port: 9502},
		"no port":                  {listen: "9400", err: wrong + `"9400": it must be an address and a port, such as :9400`},
		"a name":                   {listen: ":http", err: wrong + `":http": the port must be a number from 1 to 65535`},
		"a port that is too large": {listen: ":65536", err: wrong + `":65536": the port must be a number from 1 to 65535`},
		"port 0":                   {listen: ":0", err: wrong + `":0": the port must be a number from 1 to 65535`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
				DCGMExporter: &v1.DCGMExporterSpec{ContainerSpec: env("DCGM_EXPORTER_LISTEN", test.listen)},
			})}
			instances, err := dcgmexporter.Operand().Instances(in, nil)
			if text(err) != test.err {
				t.Fatalf("got error %q, want %q", text(err), test.err)
			}
			if err == nil && dcgmexporter.Port(instances[0]) != test.port {
				t.Errorf("got port %d, want %d", dcgmexporter.Port(instances[0]), test.port)
			}
		})
	}
}

func TestAWrongImageNamesItsField(t *testing.T) {
	spec := &v1.DCGMExporterSpec{ImageSpec: v1.ImageSpec{Image: "example.com/exporter:1", Version: "2"}}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{DCGMExporter: spec})}
	_, err := dcgmexporter.Operand().Instances(in, nil)
	const want = `spec.dcgmExporter: image "example.com/exporter:1" is a full reference: remove repository and version`
	if text(err) != want {
		t.Errorf("got %q, want %q", text(err), want)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
