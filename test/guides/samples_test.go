package guides

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
	volcanobatch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

const samples = repo + "/config/samples/ecosystem"

// definitions are the CustomResourceDefinitions of the samples and of the rules about GPUs, as their projects release
// them.
var definitions = []definition{
	{
		module: "sigs.k8s.io/karpenter", version: "v1.13.0", sum: "h1:7/ZergHciATEZ/hubSe9S2fB4iYWcRZqrWIItupUjVM=",
		paths: []string{"pkg/apis/crds/karpenter.sh_nodepools.yaml"},
	}, {
		module: "sigs.k8s.io/kueue", version: "v0.17.1", sum: "h1:r4cwg3ZFF75l7RjVbdCJgM+0RpU0MJGp7t3rLH8Zyh4=",
		paths: []string{
			"config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_workloadpriorityclasses.yaml",
		},
	}, {
		module: "github.com/kedacore/keda/v2", version: "v2.20.2", sum: "h1:SR60v8uIcelbveS8n/1jcl8tLdBBIbHMxmdOHw8tKqA=",
		paths: []string{
			"config/crd/bases/keda.sh_scaledobjects.yaml",
			"config/crd/bases/keda.sh_scaledjobs.yaml",
			"config/crd/bases/keda.sh_triggerauthentications.yaml",
		},
	}, {
		module: "github.com/kubeflow/training-operator", version: "v1.8.1",
		sum: "h1:mVvoBSCInbMBX0gGSn4+Ihj3ycwoLO1iEAw+0qPhQfc=",
		paths: []string{
			"manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "manifests/base/crds/kubeflow.org_tfjobs.yaml",
		},
	}, {
		module: "github.com/kubeflow/trainer/v2", version: "v2.0.0",
		sum:   "h1:mnQSR9iPKItxyUR8mq66XsmxqKNVHwr9YYOB7BTU9dU=",
		paths: []string{"manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"},
	}, {
		module: "github.com/ray-project/kuberay/ray-operator", version: "v1.5.0",
		sum:   "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=",
		paths: []string{"config/crd/bases/ray.io_rayjobs.yaml"},
	}, {
		module: "github.com/kserve/kserve", version: "v0.15.2", sum: "h1:uph7Umk331fvBMrHHpTJNDt6+lf3IAuyiskaQw8wIAk=",
		paths: []string{
			"config/crd/full/serving.kserve.io_inferenceservices.yaml",
			"config/crd/full/serving.kserve.io_servingruntimes.yaml",
		},
	}, {
		module: "sigs.k8s.io/jobset", version: "v0.10.1", sum: "h1:u8QKifNsrWVrlRFe6w2ofYTqFT9ma2DRHxfeB2m9xyU=",
		paths: []string{"config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"},
	}, {
		module: "sigs.k8s.io/lws", version: "v0.7.0", sum: "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=",
		paths: []string{"config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"},
	}, {
		module: "sigs.k8s.io/scheduler-plugins", version: "v0.33.5",
		sum:   "h1:9u4QAYbuoxa59aStrJKP4Bii2EQrZmGPN2tzvfs2gL0=",
		paths: []string{"config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"},
	}, {
		module: "github.com/kubeflow/mpi-operator", version: "v0.8.0",
		sum: "h1:22EccUiO4VDooG4TooesdE8o8euGVj89PIRhiP24SRE=", paths: []string{"manifests/base/kubeflow.org_mpijobs.yaml"},
	}, {
		module: "github.com/kyverno/kyverno", version: "v1.18.2", sum: "h1:w/p1ysSEzOuMO4DaYmpiJ5YioL4OCkgmFFC5cJqiJ68=",
		paths: []string{"config/crds/policies.kyverno.io/policies.kyverno.io_validatingpolicies.yaml"},
	}, {
		module: "github.com/open-policy-agent/gatekeeper/v3", version: "v3.23.1",
		sum:   "h1:njHTm0SJ6ZEhhEgmQTpJKTGQbc99fSs4hGiEp1OIKck=",
		paths: []string{"config/crd/bases/constrainttemplate-customresourcedefinition.yaml"},
	}, {
		module: "github.com/fluxcd/kustomize-controller", version: "v1.7.3",
		sum:   "h1:SzNnGn/4ObAPEHHleM5U7y/AKxKXph3Vj6ZhteeXw8M=",
		paths: []string{"config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"},
	}, {
		module: "github.com/argoproj/argo-cd/v2", version: "v2.14.21",
		sum:   "h1:Ux50vfMUITW+Y+6GAYgQlZbr6WHE5ogiLg9OxxvP9EA=",
		paths: []string{"manifests/crds/application-crd.yaml"},
	}, {
		module: "github.com/prometheus-operator/prometheus-operator", version: "v0.94.1",
		sum:   "h1:QEIb2wenPH+SdMN1xMf8l4Pmj00YYXXI6HlbLlQWkww=",
		paths: []string{"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
	},
}

// typed are the kinds whose projects release no definition as a Go module, or that are not objects: these are decoded
// strictly into the Go types of their projects.
var typed = map[string]func() any{
	"scheduling.volcano.sh/v1beta1, Kind=Queue":                func() any { return &volcano.Queue{} },
	"batch.volcano.sh/v1alpha1, Kind=Job":                      func() any { return &volcanobatch.Job{} },
	"kubelet.config.k8s.io/v1beta1, Kind=KubeletConfiguration": func() any { return &kubelet.KubeletConfiguration{} },
}

// samplesAreValid applies each sample to a namespace of its own, with strict validation by the API server. Those
// of typed are decoded only.
func samplesAreValid(e *env) {
	var paths []string
	for _, d := range definitions {
		found, err := d.files(e.t.Context())
		e.Expect(err).NotTo(HaveOccurred())
		paths = append(paths, found...)
	}
	_, err := envtest.InstallCRDs(e.cluster.SimulatorConfig, envtest.CRDInstallOptions{
		Paths: paths, ErrorIfPathMissing: true, MaxTime: eventually,
	})
	e.Expect(err).NotTo(HaveOccurred())
	applied, decoded, names := 0, 0, sampleNames(e)
	e.newNamespace("valid")
	for _, name := range names {
		for _, object := range e.sample(name) {
			if into := typed[object.GroupVersionKind().String()]; into != nil {
				text, err := yaml.Marshal(object)
				e.Expect(err).NotTo(HaveOccurred())
				e.Expect(yaml.UnmarshalStrict(text, into())).To(Succeed(), "%s: %s", name, object.GetKind())
				decoded++
				continue
			}
			if object.GetNamespace() == "" {
				object.SetNamespace("valid")
			}
			e.Expect(e.validated(object)).To(
				Or(Succeed(), MatchError(ContainSubstring("namespaces \"tenant\" not found"))), "%s: %s", name, object.GetKind())
			applied++
		}
	}
	e.t.Logf("samples: %d files, %d objects accepted by the API server, %d decoded by the types of their projects",
		len(names), applied, decoded)
}

// validated creates an object in a dry run, which the API server validates like a creation.
func (e *env) validated(object *unstructured.Unstructured) error {
	return e.client.Create(e.t.Context(), object, strictly, client.DryRunAll)
}

// strictly makes the API server refuse unknown fields, as kubectl does.
const strictly = client.FieldValidation(metav1.FieldValidationStrict)

// sampleNames returns the files of the samples.
func sampleNames(e *env) []string {
	e.t.Helper()
	files, err := filepath.Glob(filepath.Join(samples, "*.yaml"))
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(files).NotTo(BeEmpty())
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

// sample returns the objects of a sample, in the order of the file.
func (e *env) sample(name string) []*unstructured.Unstructured {
	e.t.Helper()
	return e.objectsOf(filepath.Join(samples, name))
}

func (e *env) objectsOf(path string) []*unstructured.Unstructured {
	e.t.Helper()
	text, err := os.ReadFile(path)
	e.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		e.Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed(), path)
		objects = append(objects, object)
	}
	return objects
}

// apply creates the objects of a sample in a new namespace, which it returns, for those that name none.
func (e *env) apply(name string, change func(object *unstructured.Unstructured)) string {
	e.t.Helper()
	team := "sample-" + strings.TrimSuffix(name, ".yaml")
	e.newNamespace(team)
	for _, object := range e.sample(name) {
		if typed[object.GroupVersionKind().String()] != nil {
			continue
		}
		if object.GetNamespace() == "" {
			object.SetNamespace(team)
		}
		if change != nil {
			change(object)
		}
		e.Expect(e.client.Create(e.t.Context(), object, strictly)).To(Succeed(), object.GetKind())
	}
	return team
}

// newNamespace creates a namespace, and waits until pods can be created in it.
func (e *env) newNamespace(name string) {
	e.t.Helper()
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	e.Eventually(func() error {
		return e.client.Get(e.t.Context(), client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
}

// podsOf returns the pods of a namespace, once there are so many.
func (e *env) podsOf(namespace string, count int) []corev1.Pod {
	e.t.Helper()
	list := &corev1.PodList{}
	e.Eventually(func() []corev1.Pod {
		e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		return list.Items
	}).Should(HaveLen(count))
	return list.Items
}

// onTenantNode adds a node selector to the pods of an object, so that they take no GPU of another scenario.
func onTenantNode(object *unstructured.Unstructured) {
	path := []string{"spec", "template", "spec", "nodeSelector"}
	switch object.GetKind() {
	case "Pod":
		path = []string{"spec", "nodeSelector"}
	case "Deployment", "StatefulSet", "Job":
	default:
		return
	}
	// Fails only for objects that the sample does not have.
	_ = unstructured.SetNestedStringMap(object.Object, map[string]string{tenantLabel: "true"}, path...)
}

// podsOfSamples: pods get GPUs; those that need another node or a volume wait for it.
func podsOfSamples(e *env) {
	team := e.apply("inference.yaml", onTenantNode)
	for _, pod := range e.podsOf(team, 2) {
		e.expectRunning(&pod)
	}
	team = e.apply("topology-manager.yaml", onTenantNode)
	aligned := e.podsOf(team, 1)[0]
	e.Expect(aligned.Status.QOSClass).To(Equal(corev1.PodQOSGuaranteed), "its CPUs are its own")
	e.expectRunning(&aligned)
	team = e.apply("multi-gpu-job.yaml", onTenantNode)
	training := e.podsOf(team, 1)[0]
	e.expectRunning(&training)
	e.Expect(training.Spec.Containers[0].Resources.Limits).To(
		HaveKeyWithValue(corev1.ResourceName(wholeGPU), resource.MustParse("4")))
	for _, name := range []string{"jupyter.yaml", "spot.yaml"} {
		team = e.apply(name, onTenantNode)
		stateful := e.podsOf(team, 1)[0]
		e.expectWaiting(&stateful, "unbound immediate PersistentVolumeClaims")
	}
	team = e.apply("cluster-autoscaler.yaml", nil)
	burst := e.podsOf(team, 1)[0]
	e.expectWaiting(&burst, "didn't match Pod's node affinity/selector")
}
