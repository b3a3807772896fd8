package driver_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

var pools = []nodeinfo.Pool{
	{Name: "rhel9-amd64", OSTag: "rhel9", Nodes: 1}, {Name: "ubuntu24.04-amd64", OSTag: "ubuntu24.04", Nodes: 3},
}

func instances(t *testing.T, spec *v1.DriverSpec) []operand.Instance {
	t.Helper()
	got, err := driver.Operand().Instances(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Driver: spec})}, pools)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOneInstanceForEachPool(t *testing.T) {
	type view struct{ Suffix, Pool, Image, Version string }
	tests := map[string]struct {
		spec *v1.DriverSpec
		want []view
	}{
		"a tag carries the operating system": {
			want: []view{
				{"-rhel9-amd64", "rhel9-amd64", "nvcr.io/nvidia/driver:595.91.07-rhel9", "595.91.07-rhel9"},
				{"-ubuntu24.04-amd64", "ubuntu24.04-amd64", "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", "595.91.07-ubuntu24.04"},
			},
		},
		"a full reference carries the operating system, too": {
			spec: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Image: "example.com/driver:1"}},
			want: []view{
				{"-rhel9-amd64", "rhel9-amd64", "example.com/driver:1-rhel9", "1-rhel9"},
				{"-ubuntu24.04-amd64", "ubuntu24.04-amd64", "example.com/driver:1-ubuntu24.04", "1-ubuntu24.04"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []view
			for _, i := range instances(t, test.spec) {
				got = append(got, view{i.Suffix, i.Pool, i.Image, i.Version})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWrongImagesNameTheirField(t *testing.T) {
	contradiction := v1.ImageSpec{Image: "example.com/driver:1", Version: "2"}
	const what = `: image "example.com/driver:1" is a full reference: remove repository and version`
	tests := map[string]struct {
		spec *v1.DriverSpec
		want string
	}{
		"the driver": {&v1.DriverSpec{ImageSpec: contradiction}, "spec.driver" + what},
		"its manager": {
			&v1.DriverSpec{Manager: &v1.DriverManagerSpec{ImageSpec: contradiction}},
			"spec.driver.manager" + what,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{Driver: test.spec})}
			_, err := driver.Operand().Instances(in, pools)
			if err == nil || err.Error() != test.want {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

// An unset field does not change the digest, or the next release would reinstall every driver.
func TestConfigDigest(t *testing.T) {
	digest := func(t *testing.T, spec v1.ClusterPolicySpec) string {
		t.Helper()
		got, err := driver.Operand().Instances(operand.Input{Spec: effective.Of(spec)}, pools[1:])
		if err != nil {
			t.Fatal(err)
		}
		return reflect.ValueOf(got[0].Values).FieldByName("ConfigDigest").String()
	}
	of := func(spec v1.DriverSpec) v1.ClusterPolicySpec { return v1.ClusterPolicySpec{Driver: &spec} }
	env := []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	const byDefault = "5c7c26a1afcf2f66"
	if got := digest(t, v1.ClusterPolicySpec{}); got != byDefault {
		t.Fatalf("the digest of an empty spec is %s, which reinstalls every driver", got)
	}
	tests := map[string]struct {
		spec    v1.ClusterPolicySpec
		changes bool
	}{
		"the version":                 {of(v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580.178.04"}}), true},
		"the module type":             {of(v1.DriverSpec{KernelModuleType: v1.KernelModuleOpen}), true},
		"the default, set explicitly": {of(v1.DriverSpec{KernelModuleType: v1.KernelModuleAuto}), false},
		"the environment":             {of(v1.DriverSpec{ContainerSpec: v1.ContainerSpec{Env: env}}), true},
		"RDMA":                        {of(v1.DriverSpec{RDMA: &v1.RDMASpec{Enabled: new(true)}}), true},
		"RDMA off": {
			of(v1.DriverSpec{RDMA: &v1.RDMASpec{Enabled: new(false), UseHostMOFED: new(true)}}),
			false,
		},
		"module parameters":     {of(v1.DriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "a"}}), true},
		"a secret environment":  {of(v1.DriverSpec{SecretEnv: "a"}), true},
		"GPUDirect Storage":     {v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Enabled: new(true)}}, true},
		"GPUDirect Storage off": {v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Env: env}}, false},
		"GDRCopy":               {v1.ClusterPolicySpec{GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}}, true},
		"the driver manager": {
			of(v1.DriverSpec{Manager: &v1.DriverManagerSpec{Env: env, ImageSpec: v1.ImageSpec{Version: "v0.11.0"}}}),
			false,
		},
		"probes": {
			of(v1.DriverSpec{LivenessProbe: &v1.ProbeSpec{PeriodSeconds: 9}, StartupProbe: &v1.ProbeSpec{PeriodSeconds: 9}}),
			false,
		},
		"a licence":    {of(v1.DriverSpec{LicensingConfig: &v1.DriverLicensingConfigSpec{SecretName: "a"}}), false},
		"repositories": {of(v1.DriverSpec{RepoConfig: &v1.DriverRepoConfigSpec{ConfigMapName: "a"}}), false},
		"certificates": {of(v1.DriverSpec{CertConfig: &v1.DriverCertConfigSpec{Name: "a"}}), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if changes := digest(t, test.spec) != byDefault; changes != test.changes {
				t.Errorf("changes the digest: %v", changes)
			}
		})
	}
	swapped := of(v1.DriverSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{env[1], env[0]}}})
	if digest(t, swapped) != digest(t, of(v1.DriverSpec{ContainerSpec: v1.ContainerSpec{Env: env}})) {
		t.Error("the order of the environment changes the digest")
	}
	sidecars := func(gds, gdrcopy []string) string {
		return digest(t, v1.ClusterPolicySpec{
			GDS: &v1.GDSSpec{Enabled: new(true), Args: gds}, GDRCopy: &v1.GDRCopySpec{Enabled: new(true), Args: gdrcopy},
		})
	}
	with := []string{"install", "--verbose"}
	if plain := sidecars(nil, nil); plain == sidecars(with, nil) || plain == sidecars(nil, with) ||
		sidecars(with, nil) == sidecars(nil, with) {
		t.Error("the arguments of the sidecars do not change the digest")
	}
}

// Two pools never have objects of the same name, though label values allow characters that object names do not.
func TestObjectNamesTellPoolsApart(t *testing.T) {
	names := []string{
		"rhel9-amd64-5.14.0-503.el9_5.x86_64", "rhel9-amd64-5.14.0-503.el9-5.x86_64", "rhel9-amd64-5.14.0-503.el9_5.x86-64",
		"rhel9-amd64-5.14.0-503.EL9_5.x86_64", "ubuntu24.04-amd64-6.8._1", "ubuntu24.04-amd64-6.8.-1", "ubuntu24.04-amd64",
	}
	var all []nodeinfo.Pool
	for _, name := range names {
		all = append(all, nodeinfo.Pool{Name: name, OSTag: "rhel9"})
	}
	got, err := driver.Operand().Instances(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}, all)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for i, instance := range got {
		name := "nvidia-driver-daemonset" + instance.Suffix
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if other := seen[name]; other != "" {
			t.Errorf("%s and %s are both %s", other, names[i], name)
		}
		seen[name] = names[i]
	}
	if seen["nvidia-driver-daemonset-ubuntu24.04-amd64"] != "ubuntu24.04-amd64" {
		t.Errorf("a pool name that is a valid object name is changed: %v", seen)
	}
}

// The image of the driver toolkit determines what is built, so it is in the digest.
func TestTheDriverToolkitDecidesWhatIsBuilt(t *testing.T) {
	const release = "418.94.202501221327-0"
	pool := nodeinfo.Pool{Name: "rhcos4.18-amd64-" + release, OSTag: "rhcos4.18", CoreOS: release}
	values := func(image string) (operand.Instance, string) {
		in := operand.Input{
			Spec: effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
				ContainerSpec: v1.ContainerSpec{Args: []string{"init", "-x"}},
			}}),
			DriverToolkit: map[string]string{release: image, "other": "example.com/other"},
		}
		got, err := driver.Operand().Instances(in, []nodeinfo.Pool{pool})
		if err != nil {
			t.Fatal(err)
		}
		return got[0], reflect.ValueOf(got[0].Values).FieldByName("ConfigDigest").String()
	}
	instance, digest := values("example.com/dtk@sha256:1")
	if _, other := values("example.com/dtk@sha256:2"); other == digest {
		t.Error("the digest must change with the image of the driver toolkit")
	}
	if _, same := values("example.com/dtk@sha256:1"); same != digest {
		t.Error("the digest is not deterministic")
	}
	if len(instance.Container.Args) > 0 {
		t.Errorf("arguments %v would replace those of the entrypoint for the toolkit", instance.Container.Args)
	}
	if instance.Suffix != "-rhcos4.18-amd64-"+release {
		t.Errorf("suffix %s", instance.Suffix)
	}
}
