package operand

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// migModel is a kind of GPU by the name that GPU Feature Discovery reports, and the MIG devices that fit on it.
type migModel struct {
	product  *regexp.Regexp
	profiles []string
}

// migModels are the models whose MIG devices are known. The MIG manager decides for others.
var migModels = []migModel{
	{regexp.MustCompile(`\bA30\b`), []string{"1g.6gb", "2g.12gb", "4g.24gb"}},
	{
		regexp.MustCompile(`\bA100\b.*\b40GB\b`),
		[]string{"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"},
	},
	{
		regexp.MustCompile(`\b(A100|H100)\b.*\b80GB\b`),
		[]string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"},
	},
	{regexp.MustCompile(`\bH200\b`), []string{"1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"}},
}

// migLayout matches a layout with one kind of MIG device on all GPUs; the second part is a variant of the device.
var migLayout = regexp.MustCompile(`^all-([0-9]+g[.][0-9]+gb)([.-].+)?$`)

// CheckMIGModel returns why the GPUs of a node cannot have a MIG layout, by the name of the product; empty if they can,
// or if that is not known. Layouts of a user's ConfigMap may have other devices than their names say.
func (in Input) CheckMIGModel(layout, product string) string {
	device := migLayout.FindStringSubmatch(layout)
	if device == nil || in.hasOwnMIGLayouts() {
		return ""
	}
	// Where GPUs are partitioned, the name of the device follows.
	product, _, _ = strings.Cut(product, labels.ProductMIG)
	i := slices.IndexFunc(migModels, func(m migModel) bool { return m.product.MatchString(product) })
	if i < 0 || slices.Contains(migModels[i].profiles, device[1]) {
		return ""
	}
	return fmt.Sprintf("MIG layout %s is not for %s: use %s, all-balanced, all-%s", layout, product,
		labels.MIGAllDisabled, strings.Join(migModels[i].profiles, ", all-"))
}
