package dropin

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// TestNames looks for the names that rules, silences, dashboards and scripts for NVIDIA's operator use.
func TestNames(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.tryAll(nameLines, slices.Concat(alertRows(), metricRows(), flagRows(), variableRows(), bundleRows(), []row{
		{name: "columns of kubectl get", verdict: honoured, check: (*env).printedColumns},
	}))
}

// rules returns the expressions of a PrometheusRule by the names of alerts and records.
func rules(g *WithT, object *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	list, _ := field(g, object, "spec", "groups").([]any)
	for _, item := range list {
		one, _ := item.(map[string]any)
		rules, _, err := unstructured.NestedSlice(one, "rules")
		g.Expect(err).NotTo(HaveOccurred())
		for _, item := range rules {
			rule, _ := item.(map[string]any)
			expression, _ := rule["expr"].(string)
			for _, key := range []string{"alert", "record"} {
				if name, isSet := rule[key].(string); isSet {
					found[name] = expression
				}
			}
		}
	}
	return found
}

func alertRows() (rows []row) {
	const toolkit = "GPUOperatorOpenshiftDriverToolkitEnabled"
	for _, alert := range []string{
		"GPUOperatorReconciliationFailed", "GPUOperatorReconciliationFailedNfdLabelsMissing",
		toolkit + "NfdTooOld", toolkit + "ImageStreamMissing", toolkit + "ImageStreamBroken", toolkit + "ImageTagsMissing",
		"GPUOperatorDriverAutoUpgradeFailures",
	} {
		rows = append(rows, row{name: "alert " + alert, verdict: honoured, check: func(e *env) {
			objects := situation{monitored: true}.intents(e)["operator-metrics"]
			rule := find(e.WithT, objects, "PrometheusRule", "nvidia-gpu-operator-metrics")
			e.Expect(rules(e.WithT, rule)).To(HaveKeyWithValue(alert, Not(BeEmpty())))
		}})
	}
	return rows
}

// metricRows: the metrics of NVIDIA's operator are served after the first pass.
func metricRows() (rows []row) {
	const toolkit = "openshift_driver_toolkit_"
	for _, name := range []string{
		"gpu_nodes_total", "reconciliation_status", "reconciliation_total", "reconciliation_failed_total",
		"reconciliation_last_success_ts_seconds", "reconciliation_has_nfd_labels", toolkit + "enabled",
		toolkit + "nfd_too_old", toolkit + "imagestream_missing", toolkit + "imagestream_broken",
		toolkit + "rhcos_tags_missing", "driver_auto_upgrade_enabled", "nodes_upgrades_in_progress", "nodes_upgrades_done",
		"nodes_upgrades_failed", "nodes_upgrades_available", "nodes_upgrades_pending",
	} {
		rows = append(rows, row{name: "metric gpu_operator_" + name, verdict: honoured, check: func(e *env) {
			registry := prometheus.NewPedanticRegistry()
			meter := metrics.New(clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)))
			e.Expect(registry.Register(meter)).To(Succeed())
			meter.ObservePass(metrics.PassStats{Status: &v1.ClusterPolicyStatus{State: v1.StateReady}})
			families, err := registry.Gather()
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(families).To(ContainElement(HaveField("GetName()", "gpu_operator_"+name)))
		}})
	}
	return rows
}

// flagRows: with the flag --version the manager reads all others, and exits.
func flagRows() (rows []row) {
	for _, flag := range []string{
		"--leader-elect", "--leader-elect-namespace=gpus", "--leader-lease-renew-deadline=60s", "--zap-devel",
		"--zap-encoder=json", "--zap-log-level=debug", "--zap-stacktrace-level=error", "--zap-time-encoding=epoch",
		"--metrics-bind-address=:8080", "--health-probe-bind-address=:8081",
	} {
		rows = append(rows, row{name: "flag " + flag, verdict: honoured, check: func(e *env) {
			binary := cluster.ShippedOperator(e.t)
			out, err := exec.CommandContext(e.t.Context(), binary, flag, "--version").CombinedOutput()
			e.Expect(err).NotTo(HaveOccurred(), "%s", out)
			e.Expect(string(out)).To(HavePrefix("gpu-operator version "))
		}})
	}
	return rows
}

// variableRows: a variable of the operator replaces the default image of an operand. The image has its own name in the
// registry of a mirror.
func variableRows() (rows []row) {
	for variable, name := range map[string]string{
		"GFD_IMAGE": "k8s-device-plugin", "CONTAINER_TOOLKIT_IMAGE": "container-toolkit", "DCGM_IMAGE": "dcgm",
		"DCGM_EXPORTER_IMAGE": "dcgm-exporter", "DEVICE_PLUGIN_IMAGE": "k8s-device-plugin", "DRIVER_IMAGE": "driver",
		"DRIVER_MANAGER_IMAGE": "k8s-driver-manager", "MIG_MANAGER_IMAGE": "k8s-mig-manager",
		"GDRCOPY_IMAGE": "gdrdrv", "GDS_IMAGE": "nvidia-fs",
	} {
		rows = append(rows, row{name: "variable " + variable, verdict: honoured, check: func(e *env) {
			catalogue, err := operands.Catalogue()
			e.Expect(err).NotTo(HaveOccurred())
			wanted := "mirror.local/gpu/" + name + "@" + sha
			overrides, ignored := image.FromVariables(catalogue.Images(), func(asked string) string {
				return map[string]string{variable: wanted}[asked]
			})
			e.Expect(ignored).To(BeEmpty())
			spec := *withSidecars.DeepCopy()
			spec.DCGM = &v1.DCGMSpec{Enabled: new(true)}
			used := 0
			for _, sets := range (situation{spec: spec, images: overrides}).intents(e) {
				for _, object := range sets {
					content, err := object.MarshalJSON()
					e.Expect(err).NotTo(HaveOccurred())
					used += strings.Count(string(content), strconv.Quote(wanted))
				}
			}
			e.Expect(used).NotTo(BeZero(), "no operand uses %s", wanted)
		}})
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows
}

// bundleRows: what consoles and Subscriptions for OpenShift use of the bundle.
func bundleRows() (rows []row) {
	for name, check := range map[string]func(g *WithT, bundle *packaged.Bundle){
		"installs into one namespace": func(g *WithT, bundle *packaged.Bundle) {
			g.Expect(bundle.CSV.Spec.InstallModes).To(ContainElement(And(HaveField("Type", "SingleNamespace"),
				HaveField("Supported", true))))
		},
		"describes the fields of the spec": func(g *WithT, bundle *packaged.Bundle) {
			g.Expect(len(bundle.CSV.Spec.Definitions.Owned[0].SpecDescriptors)).To(BeNumerically(">=", 51))
		},
		"lists images for a mirror": func(g *WithT, bundle *packaged.Bundle) {
			catalogue, err := operands.Catalogue()
			g.Expect(err).NotTo(HaveOccurred())
			for _, one := range catalogue.Images() {
				g.Expect(bundle.CSV.Spec.RelatedImages).To(ContainElement(HaveField("Image",
					HavePrefix(one.Repository+"/"+one.Image+":"))), one.Name)
			}
		},
		"uses the proxy of the cluster": func(g *WithT, bundle *packaged.Bundle) {
			g.Expect(bundle.CSV.Metadata.Annotations).To(
				HaveKeyWithValue("features.operators.openshift.io/proxy-aware", "true"))
		},
	} {
		rows = append(rows, row{name: "the bundle " + name, verdict: honoured, check: func(e *env) {
			bundle, err := packaged.OpenBundle(repo + "/bundle")
			e.Expect(err).NotTo(HaveOccurred())
			check(e.WithT, bundle)
		}})
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	return rows
}

// printedColumns reads the definition as the API server stores it.
func (e *env) printedColumns() {
	e.installCRD()
	versions, _ := field(e.WithT, e.definition(), "spec", "versions").([]any)
	e.Expect(versions).To(HaveLen(1))
	first, _ := versions[0].(map[string]any)
	e.Expect(first["additionalPrinterColumns"]).To(ContainElements(
		And(HaveKeyWithValue("name", "Status"), HaveKeyWithValue("jsonPath", ".status.state")),
		And(HaveKeyWithValue("name", "Age"), HaveKeyWithValue("jsonPath", ".metadata.creationTimestamp"))))
}
