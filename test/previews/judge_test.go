package previews

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
)

// decoded returns the objects that render printed.
func decoded(g Gomega, text string) objects {
	found := objects{}
	for document := range strings.SplitSeq(strings.TrimPrefix(text, "---\n"), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		one := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(document), &one.Object)).To(Succeed())
		g.Expect(found).NotTo(HaveKey(keyOf(one)), "printed twice")
		found[keyOf(one)] = one
	}
	return found
}

// digestOf returns the digest of an object as it is printed.
func digestOf(g Gomega, printed *unstructured.Unstructured) string {
	printed = printed.DeepCopy()
	annotations := printed.GetAnnotations()
	delete(annotations, labels.Digest)
	if len(annotations) == 0 {
		annotations = nil
	}
	printed.SetAnnotations(annotations)
	intent, err := apply.Intent(printed)
	g.Expect(err).NotTo(HaveOccurred())
	return intent.GetAnnotations()[labels.Digest]
}

// difference is that of an object between what was printed and what the operator has applied.
type difference struct {
	// key of the object, and operand that it is of.
	key, operand string
	// printed and applied are its contents, nil for none.
	printed, applied map[string]any
	text             string
}

// judgeRendering returns the differences between what render printed and what the operator has applied: objects that
// are only on one side, and fields of the others. contents are the printed objects as the API server completes them.
func judgeRendering(contents map[string]map[string]any, live objects) []difference {
	var found []difference
	for _, key := range slices.Sorted(maps.Keys(contents)) {
		one := difference{key: key, operand: operandOf(contents[key]), printed: contents[key]}
		if live[key] == nil {
			one.text = key + " was printed and is not applied"
			found = append(found, one)
			continue
		}
		one.applied = withoutServerFields(live[key])
		if diff := cmp.Diff(one.printed, one.applied); diff != "" {
			one.text = fmt.Sprintf("%s differs, -printed +applied:\n%s", key, diff)
			found = append(found, one)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(live)) {
		if contents[key] == nil {
			found = append(found, difference{
				key: key, operand: operandOf(live[key].Object), applied: withoutServerFields(live[key]),
				text: key + " is applied and was not printed",
			})
		}
	}
	return found
}

// operandOf returns the operand that an object is of.
func operandOf(content map[string]any) string {
	return (&unstructured.Unstructured{Object: content}).GetLabels()["nvidia.com/gpu-operator.operand"]
}

// planned decodes what plan printed.
func planned(g Gomega, of printed) preview.Preview {
	found := preview.Preview{}
	g.Expect(json.Unmarshal([]byte(of.out), &found)).To(Succeed(), of.errOut)
	return found
}

// judgePlan returns the differences between the planned changes and those of the objects: of those that follow the edit
// at once, or of those that follow when driver upgrades move nodes.
func judgePlan(changes []preview.Change, later bool, before, after objects) []difference {
	var found []difference
	add := func(key, text string) { found = append(found, difference{key: key, text: text}) }
	changed := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		key := c.Kind + " " + c.Name
		if c.Later != later {
			continue
		}
		changed[key] = true
		if !happened(c.Action, before[key], after[key]) {
			add(key, fmt.Sprintf("%s: %s was planned; it existed before: %t, and after: %t", key, c.Action,
				before[key] != nil, after[key] != nil))
		} else if c.Action == preview.Create || c.Action == preview.Update {
			for _, text := range judgeImages(c, after[key]) {
				add(key, text)
			}
			if c.Action == preview.Update {
				for _, text := range unnamedFields(c.Differences, content(before[key]), content(after[key])) {
					add(key, key+" has a field that was not planned: "+text)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(merged(before, after))) {
		if !changed[key] && !sameContent(before[key], after[key]) {
			add(key, fmt.Sprintf("%s was to stay, -before +after:\n%s", key, cmp.Diff(content(before[key]),
				content(after[key]))))
		}
	}
	return found
}

// happened reports whether an object has changed as planned.
func happened(action preview.Action, before, after *unstructured.Unstructured) bool {
	switch action {
	case preview.Create:
		return before == nil && after != nil
	case preview.Delete:
		return before != nil && after == nil
	case preview.Update:
		return before != nil && after != nil && !sameContent(before, after)
	case preview.Refuse:
	}
	return true
}

// judgeImages returns the planned images that the containers do not have.
func judgeImages(c *preview.Change, live *unstructured.Unstructured) []string {
	var found []string
	for _, image := range c.Images {
		containers, _, _ := unstructured.NestedSlice(live.Object, "spec", "template", "spec", "containers")
		inits, _, _ := unstructured.NestedSlice(live.Object, "spec", "template", "spec", "initContainers")
		has := slices.ContainsFunc(slices.Concat(containers, inits), func(container any) bool {
			fields, isMap := container.(map[string]any)
			return isMap && fields["name"] == image.Container && fields["image"] == image.After
		})
		if !has {
			found = append(found, fmt.Sprintf("%s %s: container %s has not the planned image %s", c.Kind, c.Name,
				image.Container, image.After))
		}
	}
	return found
}

func merged(a, b objects) objects {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func sameContent(a, b *unstructured.Unstructured) bool { return cmp.Equal(content(a), content(b)) }

func content(one *unstructured.Unstructured) map[string]any {
	if one == nil {
		return nil
	}
	return withoutServerFields(one)
}
