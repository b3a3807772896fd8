package addoperand

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
)

const repo = "../.."

// The files that a contributor writes. An operand takes four places; the fields of the spec and the catalogue are
// lists, to which a line is added. A field of an operand takes its type, the operand, and its entry in the table of
// fields without a default; one with a default takes that, and the same in testdata/defaults.yaml. A reason takes its
// constant, whose comment explains it, and the code that gives it.
var (
	ofTheOperand = []string{
		"api/v1/clusterpolicy_types.go",
		"api/v1/toy_types.go",
		"assets/toy/0500_daemonset.yaml",
		"assets/toy/install.yaml",
		"internal/operand/operands/catalogue.go",
		"internal/operand/operands/toy/doc.go",
		"internal/operand/operands/toy/toy.go",
	}
	ofTheField  = []string{discoveryType, discoveryCode, defaults}
	ofTheReason = []string{"api/v1/conditions.go", "internal/operand/operands/toy/toy.go"}
)

const (
	defaults      = "internal/policy/effective/coverage_test.go"
	discoveryType = "api/v1/gfd_types.go"
	discoveryCode = "internal/operand/operands/gpufeaturediscovery/gpufeaturediscovery.go"
)

// generated matches the files that make writes.
var generated = regexp.MustCompile(
	`^(api/v1/zz_generated\.deepcopy\.go|bundle/|config/crd/|config/helm/gpu-operator/|` +
		`config/openshift/operands\.yaml$|config/rbac/operands/|docs/|` +
		`internal/(status/reasons/reasons\.json|[a-z/]+/testdata/.*\.golden))`,
)

// generic are the packages whose tests every operand must pass.
var generic = []string{
	"./api/...", "./assets/...", "./config/...", "./internal/node/assess", "./internal/policy/effective",
	"./internal/policy/image", "./internal/status/...", "./internal/operand/...", "./internal/stack/plan",
	"./internal/stack/render/...", "./cmd/gpu-operator/...", "./cmd/kubectl-gpu", "./test/contract", "./test/manifests",
	"./test/specgen",
}

// The test below takes minutes and runs in CI only. This one fails as soon as a change of the API leaves no room in the
// definition for one more block like that of the MIG manager, which has the fields that operands share and few others.
func TestTheCRDHasRoomForAnOperand(t *testing.T) {
	g := NewWithT(t)
	definition := map[string]any{}
	g.Expect(yaml.Unmarshal(crd.ClusterPolicy, &definition)).To(Succeed())
	schema := crd.SchemaOf(definition, v1.GroupVersion.Version)
	block, found, err := unstructured.NestedMap(schema, "properties", "spec", "properties", "migManager")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeTrue())
	used, err := crd.Size(definition)
	g.Expect(err).NotTo(HaveOccurred())
	needed, err := crd.Size(block)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(used+needed).To(BeNumerically("<=", crd.MaxSize), "shorten first paragraphs of field comments")
}

// An operand, a field of another one and a reason are added at once, since the generators and the tests take minutes.
func TestWhatAnAdditionTakes(t *testing.T) {
	if os.Getenv("TEST_OPERAND") == "" {
		t.Skip("takes minutes; run make test-operand")
	}
	g := NewWithT(t)
	root := copyOf(t)
	addToy(t, root)
	addField(t, root)
	addReason(t, root)

	run(t, root, "make", "--no-print-directory", "generate", "manifests", "docs", "chart", "bundle", "golden")
	run(t, root, "go", append([]string{"test"}, generic...)...)

	var byHand []string
	for line := range strings.Lines(run(t, root, "git", "status", "--porcelain", "--untracked-files=all")) {
		if file := strings.TrimSpace(line[2:]); !generated.MatchString(file) {
			byHand = append(byHand, file)
		}
	}
	slices.Sort(byHand)
	written := slices.Concat(ofTheOperand, ofTheField, ofTheReason)
	slices.Sort(written)
	g.Expect(byHand).To(Equal(slices.Compact(written)))
	g.Expect(filepath.Join(root, "config/rbac/operands/toy.yaml")).To(BeAnExistingFile())
	for file, text := range map[string]string{
		"config/helm/gpu-operator/values.yaml":                     "# toy:",
		"bundle/manifests/gpu-operator.clusterserviceversion.yaml": "registry.example.com/toy:v1.0.0",
		"config/openshift/operands.yaml":                           "name: nvidia-toy",
		"docs/api.md":                                              "## ToySpec",
		"docs/troubleshooting.md":                                  "### ToyIsOff\n",
		"internal/status/reasons/reasons.json":                     `"ToyIsOff"`,
		"config/crd/bases/nvidia.com_clusterpolicies.yaml":         "toyHint:",
	} {
		g.Expect(os.ReadFile(filepath.Join(root, file))).To(ContainSubstring(text), file)
	}
}

// copyOf copies the working tree, with its changes, into a repository of its own with one commit.
func copyOf(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	from, err := filepath.Abs(repo)
	g.Expect(err).NotTo(HaveOccurred())
	root := filepath.Join(t.TempDir(), "repo")
	for file := range strings.SplitSeq(
		run(t, from, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00",
	) {
		if file == "" {
			continue
		}
		info, err := os.Stat(filepath.Join(from, file))
		if os.IsNotExist(err) {
			continue // Deleted in the working tree.
		}
		g.Expect(err).NotTo(HaveOccurred())
		data, err := os.ReadFile(filepath.Join(from, file))
		g.Expect(err).NotTo(HaveOccurred())
		place(t, filepath.Join(root, file), data, info.Mode())
	}
	// The tools that the repository has installed for itself.
	g.Expect(os.MkdirAll(filepath.Join(root, ".cache"), 0o755)).To(Succeed())
	if tools := filepath.Join(from, ".cache/tools"); isDir(tools) {
		g.Expect(os.Symlink(tools, filepath.Join(root, ".cache/tools"))).To(Succeed())
	}
	run(t, root, "git", "init", "--quiet")
	run(t, root, "git", "add", "--all")
	run(t, root, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet",
		"--message=before")
	return root
}

// addToy writes the files of testdata/toy, without the ending that hides Go files from the compiler, and the two lines.
func addToy(t *testing.T, root string) {
	t.Helper()
	g := NewWithT(t)
	toy := os.DirFS("testdata/toy")
	g.Expect(fs.WalkDir(toy, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(toy, path)
		place(t, filepath.Join(root, strings.TrimSuffix(path, ".txt")), data, 0o644)
		return err
	})).To(Succeed())
	insert(t, filepath.Join(root, "api/v1/clusterpolicy_types.go"), "\tNodeStatusExporter *NodeStatusExporterSpec ",
		"\t// Toy configures the toy.\n\t// +optional\n\tToy *ToySpec `json:\"toy,omitempty\"`\n")
	catalogue := filepath.Join(root, "internal/operand/operands/catalogue.go")
	const operands = "github.com/clusterpolicy/gpu-operator/internal/operand/operands/"
	insert(t, catalogue, "\t\""+operands+"runtimeclasses\"", "\t\""+operands+"toy\"\n")
	insert(t, catalogue, "\t\tmigmanager.Operand(),", "\t\ttoy.Operand(),\n")
}

// addField adds spec.gfd.toyHint, which GPU Feature Discovery gets as a variable.
func addField(t *testing.T, root string) {
	t.Helper()
	insert(t, filepath.Join(root, discoveryType), "\tContainerSpec `json", "\t// ToyHint is written.\n\t// +optional\n"+
		"\t// +kubebuilder:validation:MaxLength=64\n\tToyHint string `json:\"toyHint,omitempty\"`\n")
	insert(t, filepath.Join(root, discoveryCode), "\tmig.Of(in).AddTo(",
		"\tenv.AddIf(spec.ToyHint != \"\", \"TOY_HINT\", spec.ToyHint)\n")
	insert(t, filepath.Join(root, defaults), "\t\"DriverSpec.secretEnv\":", "\t\"GFDSpec.toyHint\": none,\n")
}

// addReason adds a reason, which the toy gives when it is off.
func addReason(t *testing.T, root string) {
	t.Helper()
	insert(t, filepath.Join(root, ofTheReason[0]), "\tReasonStarting = ",
		"\t// ReasonToyIsOff: the toy is not wanted.\n\t// Cause: spec.toy.enabled is not true.\n"+
			"\t// Remedy: set it to true.\n\tReasonToyIsOff = \"ToyIsOff\"\n")
	toy := filepath.Join(root, ofTheReason[1])
	data, err := os.ReadFile(toy)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	code := strings.Replace(string(data), "v1.ReasonDisabledBySpec", "v1.ReasonToyIsOff", 1)
	g.Expect(code).NotTo(Equal(string(data)))
	place(t, toy, []byte(code), 0o644)
}

// insert adds lines behind the one that starts so.
func insert(t *testing.T, file, start, lines string) {
	t.Helper()
	g := NewWithT(t)
	data, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	before, after, found := strings.Cut(string(data), start)
	g.Expect(found).To(BeTrue(), "%s has no line that starts with %q", file, start)
	rest, after, _ := strings.Cut(after, "\n")
	place(t, file, []byte(before+start+rest+"\n"+lines+after), 0o644)
}

func place(t *testing.T, file string, data []byte, mode fs.FileMode) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(file, data, mode.Perm())).To(Succeed())
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// run runs a command in a directory and returns what it prints. It must succeed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "TEST_OPERAND=", "MAKEFLAGS=")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
