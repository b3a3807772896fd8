package schemacheck

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/yaml"
)

// Checker checks objects of one version of a kind.
type Checker struct {
	schema     validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

// New returns a checker for a version of a definition in YAML.
func New(definition []byte, version string) (*Checker, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(definition, crd); err != nil {
		return nil, fmt.Errorf("decoding the CustomResourceDefinition: %w", err)
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == version && v.Schema != nil {
			return newChecker(v.Schema)
		}
	}
	return nil, fmt.Errorf("CustomResourceDefinition %s has no version %s with a schema", crd.Name, version)
}

func newChecker(of *apiextensionsv1.CustomResourceValidation) (*Checker, error) {
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(
		of, internal, nil); err != nil {
		return nil, fmt.Errorf("converting the schema: %w", err)
	}
	schema, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	return &Checker{
		schema: schema, structural: structural, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
}

// Result is what the API server would find.
type Result struct {
	// Refused is why it would refuse the object.
	Refused field.ErrorList
	// Dropped are the paths of the fields that it does not know.
	Dropped []string
	// RulesSkipped: the CEL rules were not evaluated because of what is refused.
	RulesSkipped bool
}

// Check returns what the API server would find. The object is not changed.
func (c *Checker) Check(ctx context.Context, object *unstructured.Unstructured) Result {
	checked, result := object.DeepCopy(), Result{}
	metadata := field.NewPath("metadata")
	_, _, unknown, err := objectmeta.GetObjectMetaWithOptions(checked.Object, objectmeta.ObjectMetaOptions{
		ReturnUnknownFieldPaths: true,
	})
	if err != nil {
		// The API server cannot decode the object, and looks at nothing else.
		return Result{Refused: field.ErrorList{field.TypeInvalid(metadata, "", err.Error())}, RulesSkipped: true}
	}
	unstructured.RemoveNestedField(checked.Object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(checked.Object, c.structural)
	if checked.GetName() == "" && checked.GetGenerateName() != "" {
		checked.SetName(names.SimpleNameGenerator.GenerateName(checked.GetGenerateName()))
	}
	result.Dropped = pruning.PruneWithOptions(checked.Object, c.structural, true, structuralschema.UnknownFieldPathOptions{
		TrackUnknownFieldPaths: true,
	})
	result.Dropped = append(result.Dropped, unknown...)
	result.Refused = slices.Concat(
		metavalidation.ValidateObjectMetaAccessor(checked, false, metavalidation.NameIsDNSSubdomain, metadata),
		validation.ValidateCustomResource(nil, checked.Object, c.schema),
		listtype.ValidateListSetsAndMaps(nil, c.structural, checked.Object),
	)
	// The API server adds an error without a path here, which kubectl prints as "<nil>: Invalid value".
	if result.RulesSkipped = slices.ContainsFunc(result.Refused, blocksRules); result.RulesSkipped {
		return result
	}
	broken, _ := c.rules.Validate(ctx, nil, c.structural, checked.Object, nil, celconfig.RuntimeCELCostBudget)
	result.Refused = append(result.Refused, broken...)
	return result
}

// blocksRules reports whether the API server evaluates no rules beside an error: they may assume that types and lengths
// are right.
func blocksRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
		field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}
